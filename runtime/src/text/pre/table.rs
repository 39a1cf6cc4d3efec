//! Which scheme each `tokenizer.ggml.pre` name means.
//!
//! The expressions are those that the models' makers publish in their `tokenizer.json`, taken apart into
//! alternatives. Letters in contractions are written out in both cases: folding would add the long s.

use super::Pass::{self, BoundedThousands, Rules, Thousands};
use super::Rule::{self, Re, SpaceChunks, Spaces};

/// A way of cutting text, with what goes along with the name.
#[derive(Debug)]
pub(crate) struct Scheme {
    /// The passes in order.
    pub(crate) passes: &'static [Pass],
    /// How entries spell text.
    pub(crate) spelling: Spelling,
    /// Whether a word that is an entry as a whole is taken without merging.
    pub(crate) ignore_merges: bool,
    /// Whether a begin mark is added when the metadata does not say.
    pub(crate) add_bos: bool,
}

/// How the entries of a vocabulary spell text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Byte by byte, in the byte alphabet.
    Alphabet,
    /// As it is, with U+2581 for spaces.
    MarkedSpaces,
    /// As it is; white space is only where words end and is lost.
    Words,
}

/// The scheme of vocabularies that name none.
pub(crate) const DEFAULT: &str = "default";

impl Scheme {
    const fn spelled(self, spelling: Spelling) -> Self {
        Self { spelling, ..self }
    }

    const fn whole_words(self) -> Self {
        Self { ignore_merges: true, ..self }
    }

    const fn with_bos(self) -> Self {
        Self { add_bos: true, ..self }
    }
}

const fn scheme(passes: &'static [Pass]) -> Scheme {
    Scheme { passes, spelling: Spelling::Alphabet, ignore_merges: false, add_bos: false }
}

const CONTRACTION: Rule = Re(r"'s|'t|'re|'ve|'m|'ll|'d");
const ANY_CONTRACTION: Rule = Re(r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]");
const LED_WORD: Rule = Re(r"[^\r\n\p{L}\p{N}]?\p{L}+");
const DIGIT: Rule = Re(r"\p{N}");
const THREE_DIGITS: Rule = Re(r"\p{N}{1,3}");
const SYMBOLS_TO_LINE_END: Rule = Re(r" ?[^\s\p{L}\p{N}]+[\r\n]*");
const SYMBOLS_TO_SLASH: Rule = Re(r" ?[^\s\p{L}\p{N}]+[\r\n/]*");
const SPACE_TO_LINE_END: Rule = Re(r"\s*[\r\n]+");

const GPT2: Pass = Rules(&[CONTRACTION, Re(r" ?\p{L}+"), Re(r" ?\p{N}+"), Re(r" ?[^\s\p{L}\p{N}]+"), Spaces]);
const EACH_DIGIT: Pass = Rules(&[DIGIT]);

static S_DEFAULT: Scheme = scheme(&[
    Rules(&[Re(r"[\p{P}$+<=>^~|]+")]),
    GPT2,
    Rules(&[Re(r"\p{N}+")]),
    Rules(&[Re(r"[0-9][0-9][0-9]")]),
]);
static S_FALCON: Scheme =
    scheme(&[Rules(&[Re(r"[\p{P}$+<=>^~|`]+")]), GPT2, Rules(&[Re(r"[0-9][0-9][0-9]")])]);
static S_GPT2: Scheme = scheme(&[GPT2]);
static S_DIGITS_GPT2: Scheme = scheme(&[EACH_DIGIT, GPT2]);

const LLAMA3: Pass =
    Rules(&[ANY_CONTRACTION, LED_WORD, THREE_DIGITS, SYMBOLS_TO_LINE_END, SPACE_TO_LINE_END, Spaces]);
const QWEN2: Pass =
    Rules(&[ANY_CONTRACTION, LED_WORD, DIGIT, SYMBOLS_TO_LINE_END, SPACE_TO_LINE_END, Spaces]);
static S_LLAMA3: Scheme = scheme(&[LLAMA3]).whole_words().with_bos();
static S_GLM4: Scheme = scheme(&[LLAMA3]).whole_words();
static S_LLAMA3_PLAIN: Scheme = scheme(&[LLAMA3]);
static S_QWEN2: Scheme = scheme(&[QWEN2]);
static S_QWEN35: Scheme = scheme(&[Rules(&[
    ANY_CONTRACTION,
    Re(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"),
    DIGIT,
    Re(r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),
    SPACE_TO_LINE_END,
    Spaces,
])]);

const CJK: &str = r"[一-龥\x{800}-一가-\x{D7FF}]+";
/// The published class lists the cased letters one by one, and not those that came to Unicode late.
const LISTED_LETTERS: &str = r"\s?[\p{Lu}\p{Ll}\p{Lt}--[\x{560}-\x{588}\x{10C7}\x{10CD}\x{10D0}-\x{10FF}\x{1C80}-\x{1C8A}\x{2D00}-\x{2D2D}\x{A790}-\x{A7FA}\x{AB30}-\x{AB68}\x{10570}-\x{105BC}\x{10D50}-\x{10D85}\x{16E40}-\x{16E7F}\x{1D400}-\x{1D7CB}\x{1DF00}-\x{1DF2A}]]+";
static S_DEEPSEEK_LLM: Scheme = scheme(&[
    Rules(&[Re(r"[\r\n]")]),
    Rules(&[Re(LISTED_LETTERS)]),
    Rules(&[Re(r"\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+")]),
    Rules(&[Re(r"\s+$")]),
    Rules(&[Re(CJK)]),
    Rules(&[Re(r"\p{N}+")]),
]);
static S_DEEPSEEK_CODER: Scheme = scheme(&[
    Rules(&[Re(r"[\r\n]")]),
    Rules(&[Re(r"\s?\p{L}+")]),
    Rules(&[Re(r"\s?\p{P}+")]),
    Rules(&[Re(CJK)]),
    EACH_DIGIT,
]);
const THREE_DIGITS_PASS: Pass = Rules(&[THREE_DIGITS]);
const KANA_AND_HAN: Pass = Rules(&[Re(r"[一-龥\x{3040}-ゟ゠-ヿ]+")]);
const PUNCTUATION_LED: Rule = Re(r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##);
const LED_MARKED_WORD: Rule = Re(r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+");
const DEEPSEEK3_WORDS: Pass =
    Rules(&[PUNCTUATION_LED, LED_MARKED_WORD, Re(r" ?[\p{P}\p{S}]+[\r\n]*"), SPACE_TO_LINE_END, Spaces]);
static S_DEEPSEEK3: Scheme = scheme(&[THREE_DIGITS_PASS, KANA_AND_HAN, DEEPSEEK3_WORDS]);

const SENTENCES: Pass = Rules(&[Re(r" ?[^(\s|.,!?…。，、।۔،)]+")]);
static S_BLOOM: Scheme = scheme(&[SENTENCES]);
static S_VIKING: Scheme = scheme(&[SENTENCES, EACH_DIGIT]);

/// Words that begin in capitals and end in small letters; caseless letters and marks are both.
const RISING: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+";
const CAPITAL: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*";
const RISING_CONTRACTED: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
const CAPITAL_CONTRACTED: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
static S_TEKKEN: Scheme =
    scheme(&[Rules(&[Re(RISING), Re(CAPITAL), DIGIT, SYMBOLS_TO_SLASH, SPACE_TO_LINE_END, Spaces])])
        .whole_words()
        .with_bos();
const GPT4O: Pass = Rules(&[
    Re(RISING_CONTRACTED),
    Re(CAPITAL_CONTRACTED),
    THREE_DIGITS,
    SYMBOLS_TO_SLASH,
    SPACE_TO_LINE_END,
    Spaces,
]);
static S_GPT4O: Scheme = scheme(&[GPT4O]);
static S_GRANITE_97M: Scheme = scheme(&[GPT4O]).whole_words();
static S_MINICPM5: Scheme = scheme(&[
    THREE_DIGITS_PASS,
    Rules(&[ANY_CONTRACTION, LED_WORD, Re(r"\p{N}+"), SYMBOLS_TO_LINE_END, SPACE_TO_LINE_END, Spaces]),
])
.whole_words();
static S_UFAKZEKA: Scheme =
    scheme(&[Rules(&[LED_WORD, DIGIT, SYMBOLS_TO_LINE_END, SPACE_TO_LINE_END, Spaces])]);
static S_SEED_CODER: Scheme = scheme(&[Rules(&[
    ANY_CONTRACTION,
    LED_WORD,
    DIGIT,
    Re(r" ?[^\s\p{L}\p{N}\r\n]+"),
    SPACE_TO_LINE_END,
    Spaces,
])]);
/// Phrases: words with single spaces between them are one word.
static S_EXAONE_MOE: Scheme = scheme(&[Rules(&[
    ANY_CONTRACTION,
    Re(r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+"),
    DIGIT,
    Re(r" ?[^\s\p{L}\p{N}]+[\r\n/]?"),
    Re(r"\s*[\r\n]"),
    Spaces,
])]);
static S_TINY_AYA: Scheme = scheme(&[BoundedThousands, GPT4O]);
static S_CHAMELEON: Scheme = scheme(&[
    Rules(&[Re(r"<sentinel:[0-9]+>")]),
    Rules(&[Re(r"IMGIMG[A-I]{1,4}Z")]),
    Rules(&[Re(r"[\t\n]|    |  ")]),
    EACH_DIGIT,
    Rules(&[Re(r"[\p{P}!-/:-@\[-`{-~]")]),
    GPT2,
])
.with_bos();
const RISING_KIMI: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
const CAPITAL_KIMI: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
static S_KIMI_K2: Scheme = scheme(&[Rules(&[
    Re(r"\p{Han}+"),
    Re(RISING_KIMI),
    Re(CAPITAL_KIMI),
    THREE_DIGITS,
    SYMBOLS_TO_LINE_END,
    SPACE_TO_LINE_END,
    Spaces,
])]);
static S_AFMOE: Scheme = scheme(&[
    Thousands,
    Rules(&[Re(
        r"[一-\x{9FFF}㐀-䶿豈-\x{FAFF}\x{3040}-ゟ゠-ヿ･-ﾟ⼀-\x{2FDF}เ-\x{E7F}\x{E80}-\x{EFF}ក-\x{17FF}က-႟ꩠ-ꩿꧠ-\x{A9FF}가-\x{D7AF}ᄀ-ᇿ]+",
    )]),
    DEEPSEEK3_WORDS,
]);
static S_SPARK: Scheme = scheme(&[
    EACH_DIGIT,
    KANA_AND_HAN,
    Rules(&[PUNCTUATION_LED, LED_MARKED_WORD, Re(r" ?[\p{P}\p{S}]+"), Re(r"[\r\n]"), Spaces]),
]);
static S_LAGUNA: Scheme = scheme(&[Rules(&[Re(r"\n+")]), QWEN2]);
static S_JAIS2: Scheme = scheme(&[Rules(&[
    ANY_CONTRACTION,
    LED_WORD,
    THREE_DIGITS,
    SYMBOLS_TO_LINE_END,
    SPACE_TO_LINE_END,
    SpaceChunks,
])]);
const YOUTU_WORDS: Pass = Rules(&[
    Re(RISING_CONTRACTED),
    Re(CAPITAL_CONTRACTED),
    DIGIT,
    SYMBOLS_TO_SLASH,
    SPACE_TO_LINE_END,
    Spaces,
]);
static S_YOUTU: Scheme = scheme(&[
    Rules(&[
        Re(r"[가-힣ㄱ-ㆎ]+"),
        Re(r"[！…“”‘’—：；，、-\x{303F}︰-﹏]+"),
        Re(r"[ㄅ-ㄯ]+"),
        Re(r"[一-龥\x{3040}-ゟ゠-ヿ]+"),
    ]),
    YOUTU_WORDS,
])
.whole_words();
static S_SUPERBPE: Scheme = scheme(&[Rules(&[Re(r"\p{N}+")]), Thousands]);
const LINES: Pass = Rules(&[Re(r"[^\n]+"), Re(r"\n+")]);
static S_GEMMA4: Scheme = scheme(&[LINES]).spelled(Spelling::MarkedSpaces).with_bos();
static S_SARVAM: Scheme = scheme(&[LINES]).spelled(Spelling::MarkedSpaces);
static S_WHITESPACE: Scheme = scheme(&[Rules(&[Re(r"\S+")])]).spelled(Spelling::Words);

static NAMES: &[(&str, &Scheme)] = &[
    (DEFAULT, &S_DEFAULT),
    ("llama3", &S_LLAMA3),
    ("llama-v3", &S_LLAMA3),
    ("llama-bpe", &S_LLAMA3),
    ("falcon3", &S_LLAMA3),
    ("falcon-h1", &S_LLAMA3),
    ("pixtral", &S_LLAMA3),
    ("midm-2.0", &S_LLAMA3),
    ("lfm2", &S_LLAMA3),
    ("jina-v5-nano", &S_LLAMA3),
    ("dbrx", &S_LLAMA3_PLAIN),
    ("smaug-bpe", &S_LLAMA3_PLAIN),
    ("chatglm-bpe", &S_LLAMA3_PLAIN),
    ("glm4", &S_GLM4),
    ("glm5", &S_GLM4),
    ("gpt-2", &S_GPT2),
    ("jina-es", &S_GPT2),
    ("jina-de", &S_GPT2),
    ("gigachat", &S_GPT2),
    ("jina-v2-es", &S_GPT2),
    ("jina-v2-de", &S_GPT2),
    ("a.x-4.0", &S_GPT2),
    ("mellum", &S_GPT2),
    ("modern-bert", &S_GPT2),
    ("jina-v1-en", &S_GPT2),
    ("jina-v2-code", &S_GPT2),
    ("roberta-bpe", &S_GPT2),
    ("exaone4", &S_GPT2),
    ("trillion", &S_GPT2),
    ("granite-docling", &S_GPT2),
    ("phi-2", &S_GPT2),
    ("mpt", &S_GPT2),
    ("olmo", &S_GPT2),
    ("jais", &S_GPT2),
    ("starcoder", &S_DIGITS_GPT2),
    ("refact", &S_DIGITS_GPT2),
    ("command-r", &S_DIGITS_GPT2),
    ("smollm", &S_DIGITS_GPT2),
    ("mellum2", &S_DIGITS_GPT2),
    ("codeshell", &S_DIGITS_GPT2),
    ("exaone", &S_DIGITS_GPT2),
    ("minerva-7b", &S_DIGITS_GPT2),
    ("falcon", &S_FALCON),
    ("qwen2", &S_QWEN2),
    ("kormo", &S_QWEN2),
    ("f2llmv2", &S_QWEN2),
    ("megrez", &S_QWEN2),
    ("bailingmoe", &S_QWEN2),
    ("bailingmoe2", &S_QWEN2),
    ("llada-moe", &S_QWEN2),
    ("hunyuan", &S_QWEN2),
    ("grok-2", &S_QWEN2),
    ("solar-open", &S_QWEN2),
    ("deepseek-r1-qwen", &S_QWEN2),
    ("stablelm2", &S_QWEN2),
    ("qwen35", &S_QWEN35),
    ("deepseek-llm", &S_DEEPSEEK_LLM),
    ("deepseek-coder", &S_DEEPSEEK_CODER),
    ("deepseek-v3", &S_DEEPSEEK3),
    ("hunyuan-dense", &S_DEEPSEEK3),
    ("hy_v4", &S_DEEPSEEK3),
    ("joyai-llm", &S_DEEPSEEK3),
    ("bloom", &S_BLOOM),
    ("poro-chat", &S_BLOOM),
    ("gpt3-finnish", &S_BLOOM),
    ("viking", &S_VIKING),
    ("tekken", &S_TEKKEN),
    ("gpt-4o", &S_GPT4O),
    ("kanana2", &S_GPT4O),
    ("talkie", &S_GPT4O),
    ("minimax-m2", &S_GPT4O),
    ("granite-embed-multi-97m", &S_GRANITE_97M),
    ("llama4", &S_GPT4O),
    ("superbpe", &S_SUPERBPE),
    ("spark2_5", &S_SPARK),
    ("laguna", &S_LAGUNA),
    ("jais-2", &S_JAIS2),
    ("youtu", &S_YOUTU),
    ("afmoe", &S_AFMOE),
    ("kimi-k2", &S_KIMI_K2),
    ("chameleon", &S_CHAMELEON),
    ("tiny_aya", &S_TINY_AYA),
    ("cohere2moe", &S_TINY_AYA),
    ("exaone-moe", &S_EXAONE_MOE),
    ("seed-coder", &S_SEED_CODER),
    ("ufakzeka", &S_UFAKZEKA),
    ("minicpm5", &S_MINICPM5),
    ("gemma4", &S_GEMMA4),
    ("granite-embed-multi-311m", &S_GEMMA4),
    ("sarvam-moe", &S_SARVAM),
    ("whitespace", &S_WHITESPACE),
];

/// The scheme with this name.
pub(crate) fn by_name(name: &str) -> Option<&'static Scheme> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, scheme)| *scheme)
}

/// All names.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}
