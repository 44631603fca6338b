#!/usr/bin/env python3
"""Writes pieces.json and small_bpe.json: what the `tokenizers` package makes of a list of texts.

    pip install tokenizers && tests/data/tokenizer/make_cases.py

pieces.json     pieces of the DeepSeek-V3 pre-tokeniser
small_bpe.json  a byte-level BPE of a few hundred merges, trained on the sample below, and tokens of the same texts
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).parent

SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]

SPECIALS = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>",
            "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>"]

TEXTS = [
    "", "Hello, world! 12345 apples", "    int x = 0;\n\n\treturn x;", "a.b(c) >;\n}", "it's 3.14e10",
    "foo  \n  bar", "x   1", "_name __init__", "caffè è buono", "🙂🙂 ok", "你好，世界！", "abc漢字 漢字", "naïve—test",
    "カタカナ・テスト", "１２３４", "«ciao»", " leading", "trailing ", "  ", "\n", "\r\n\r\n x", " \n \n ", "\t\tx\t1",
    "a\u00a0b\u3000c", "\u0085x\u2028\u2029y", "\u180ea b\u180e", "\x00\x01abc\x7f", "\x1c\x1d z", "e\u0301e\u0301 \u0301x",
    "क्षत्रिय हिन्दी", "ไทย ภาษา", "한국어 텍스트입니다", "العربية ١٢٣٤٥", "👩‍👩‍👧‍👦 👍🏽 🇮🇹🇫🇷", "Ⅷ ½ ² ①②③④", "゛゜ ゠ーヽ ゟヿ",
    "〇一二三", "𠀀𠀁 漢", "\ufeffBOM", "\ufffd\ufffd", "1234567 89", "ひらがなと漢字123カナ", "漢 字", "漢  字", "!?!?\n\nx", " !?a",
    "...and", "C++20 -> x->y", "for (int i = 0; i < 10; ++i) {\r\n    f(i);\r\n}", "http://example.org/a_b?c=1&d=%20", "don't WON'T",
    "snake_case camelCase kebab-case", "1,234.56 €", "x=1;y=2", "\\n \\t", "<p class=\"a\">b</p>", " " * 40 + "x", " " * 40 + "1", "\n" * 20,
    "a" * 100, "ab" * 50, "9" * 20, "<think>", "Do not say <｜User｜> here", "ﬁ ǅ ʰ", "Straße ŒUVRE ÆØÅ",
]

MARKUP_TEXTS = [
    "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>",
    "<｜begin▁of▁sentence｜>Be brief.<｜User｜>2+2?<｜Assistant｜><think>",
    "a<think>b</think>c<｜User", "<<think>>", "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">", "｜｜DSML｜｜",
]

SAMPLE = """The hold is full when the line is wet. A ship is loaded to her mark and no deeper, and the mark is painted where
everybody can see it. int main(int argc, char** argv) { for (int i = 0; i < argc; ++i) { print(argv[i]); } return 0; }
il caffè è buono, la nave è carica; das Schiff ist voll; le bateau est chargé. 世界の海と船。船は海を行く。 1 12 123 2024 2+2=4 :-) 🙂🙂🚢
  def load(self, tonnes):\n      self.tonnes += tonnes\n      return self.tonnes\n\n""" * 4


def random_texts(count):
    rng = random.Random(7)
    parts = ["a", "B", " ", "  ", "\n", "\r", "\t", "1", "9", ".", "!", "'", "_", "-", "é", "\u0301", "漢", "か", "ー", "・", "。", "—",
             "«", "🙂", "１", "²", "\u00a0", "\u3000", "\x01", "\u200d", "ا", "ก", "the", "ship", "int", "<", "｜"]
    return ["".join(rng.choice(parts) for _ in range(rng.randint(1, 24))) for _ in range(count)]


def pre_tokenizer():
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated") for split in SPLITS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def pieces_of(text):
    if not text:
        return []
    splits = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated") for split in SPLITS])
    return [piece for piece, _ in splits.pre_tokenize_str(text)]


def write(name, value):
    lines = ",\n".join(json.dumps(key) + ": " + (
        "[\n" + ",\n".join(json.dumps(item, ensure_ascii=True) for item in items) + "\n]"
        if items and isinstance(items[0], dict) else json.dumps(items, ensure_ascii=True))
        for key, items in value.items())
    (FOLDER / name).write_text("{\n" + lines + "\n}\n")


def main():
    texts = TEXTS + random_texts(300)
    write("pieces.json", {"cases": [{"text": text, "pieces": pieces_of(text)} for text in texts]})

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, show_progress=False, min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([SAMPLE], trainer)
    plain = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(plain["vocab"], key=plain["vocab"].get)
    inert = [{"text": text, "ids": tokenizer.encode(text).ids} for text in texts]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in SPECIALS])
    markup = [{"text": text, "ids": tokenizer.encode(text).ids} for text in MARKUP_TEXTS + TEXTS[:20]]
    write("small_bpe.json", {
        "tokens": tokens + SPECIALS,
        "token_types": [1] * len(tokens) + [3] * 3 + [4] * (len(SPECIALS) - 3),
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in plain["merges"]],
        "text_cases": inert,
        "markup_cases": markup,
    })


if __name__ == "__main__":
    main()
