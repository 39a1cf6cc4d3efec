//! Which format each tensor gets when a file is quantised to `Q4_K_M` and kin.
//!
//! A mix is data: a base format, and rules that name a better one for parts of the model that suffer most. The
//! first rule whose conditions all hold decides; where none does, the base holds. The figures are those of
//! llama.cpp's tool, so that a file quantised here has the same format in each tensor as one quantised there; a test
//! compares them over models of many shapes.

/// The part that a tensor plays, as far as mixes tell parts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The product that gives logits: `output.weight`, or the embedding where it serves as that, too.
    Output,
    Embedding,
    /// Values, alone or joined with others.
    Value,
    Key,
    Query,
    AttentionOutput,
    Down,
    Gate,
    Up,
    Other,
    /// In a rule: whatever the part.
    Any,
}

impl Part {
    /// The part that a name tells. `tied` says that the embedding serves as the output.
    pub(super) fn of(name: &str, tied: bool) -> Self {
        let has = |part: &str| name.contains(part);
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" if tied => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Self::Embedding,
            _ if has("attn_qkv.weight") || has("attn_kv_b.weight") || has("attn_v.weight") => Self::Value,
            _ if has("attn_k.weight") => Self::Key,
            _ if has("attn_q.weight") => Self::Query,
            _ if has("attn_output.weight") => Self::AttentionOutput,
            _ if has("ffn_down") => Self::Down,
            _ if has("ffn_gate") => Self::Gate,
            _ if has("ffn_up") => Self::Up,
            _ => Self::Other,
        }
    }
}

/// What rules ask about the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) layers: usize,
    /// Query heads that share a key.
    pub(super) sharing: u32,
    pub(super) experts: u32,
    pub(super) falcon: bool,
    /// The weights come with measured importance.
    pub(super) importance: bool,
}

/// What rules ask about a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) part: Part,
    /// It is the so-many-th of its part, of so many, in order of layers. Where experts give a layer several matrices of
    /// a part, the layer counts.
    pub(super) index: usize,
    /// The same, with every matrix counted.
    pub(super) counted: usize,
    pub(super) count: usize,
    pub(super) columns: u64,
    /// It has a matrix for each expert.
    pub(super) of_experts: bool,
}

/// A condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Among the first so many.
    First(usize),
    /// Among the first part of all: an eighth, a sixteenth.
    FirstPart(usize),
    /// The same, with every matrix of experts counted.
    FirstCounted(usize),
    /// Neither in the first eighth nor in the last.
    Middle,
    /// In the first eighth, in the last, or every third one between.
    Spread,
    /// So many query heads or more share a key.
    Sharing(u32),
    /// So many experts.
    Experts(u32),
    /// Four experts or more.
    SeveralExperts,
    /// Eighty layers whose heads share keys.
    Deep,
    Falcon,
    NotFalcon,
    Importance,
    NoImportance,
    /// Rows that are not whole super-blocks.
    Ragged,
    OfExperts,
}

impl When {
    fn holds(self, at: &Place, facts: &Facts) -> bool {
        let eighth = at.count / 8;
        let last = at.index >= 7 * at.count / 8;
        match self {
            Self::First(n) => at.index < n,
            Self::FirstPart(n) => at.index < at.count / n,
            Self::FirstCounted(n) => at.counted < at.count / n,
            Self::Middle => at.index >= eighth && !last,
            Self::Spread => at.index < eighth || last || (at.index - eighth) % 3 == 2,
            Self::Sharing(n) => facts.sharing >= n,
            Self::Experts(n) => facts.experts == n,
            Self::SeveralExperts => facts.experts >= 4,
            Self::Deep => facts.layers == 80 && facts.sharing > 1,
            Self::Falcon => facts.falcon,
            Self::NotFalcon => !facts.falcon,
            Self::Importance => facts.importance,
            Self::NoImportance => !facts.importance,
            Self::Ragged => !at.columns.is_multiple_of(256),
            Self::OfExperts => at.of_experts,
        }
    }
}

/// A better format for a part, under conditions that must all hold.
#[derive(Clone, Copy, Debug)]
struct Rule {
    part: Part,
    when: &'static [When],
    format: &'static str,
}

const fn rule(part: Part, when: &'static [When], format: &'static str) -> Rule {
    Rule { part, when, format }
}

/// A named choice of formats.
#[derive(Debug)]
pub(super) struct Mix {
    pub(super) name: &'static str,
    /// The number that stands for it in `general.file_type`.
    pub(super) file_type: u32,
    pub(super) base: &'static str,
    rules: &'static [&'static [Rule]],
}

use Part::{Any, AttentionOutput, Down, Embedding, Gate, Key, Output, Query, Up, Value};
use When::{
    Deep, Experts, Falcon, First, FirstCounted, FirstPart, Importance, Middle, NoImportance, NotFalcon,
    OfExperts, Ragged, SeveralExperts, Sharing, Spread,
};

/// Logits are worth bits, and some models need more of them.
const LOGITS_8: &[Rule] = &[rule(Output, &[Falcon], "Q8_0"), rule(Output, &[Ragged], "Q8_0")];
const LOGITS: &[Rule] = &[rule(Output, &[], "Q6_K")];
/// With eight experts attention is a small part of the whole.
const ATTENTION_8: &[Rule] = &[rule(Value, &[Experts(8)], "Q8_0"), rule(Key, &[Experts(8)], "Q8_0")];
const ATTENTION_5: &[Rule] = &[rule(AttentionOutput, &[Experts(8)], "Q5_K")];
/// Where eight heads share a key there are few values, and many depend on each.
const DEEP: &[Rule] = &[rule(Value, &[Deep], "Q5_K")];

/// What mixes of one and two bits have in common.
const FEW_BITS: &[Rule] = &[
    rule(Output, &[], "Q5_K"),
    rule(Value, &[Sharing(4)], "Q4_K"),
    rule(Value, &[SeveralExperts], "Q4_K"),
    rule(Key, &[Experts(8)], "Q4_K"),
    rule(AttentionOutput, &[Experts(8)], "Q5_K"),
];
const WITH_Q2_K: &[Rule] =
    &[rule(Embedding, &[], "Q2_K"), rule(Value, &[], "Q2_K"), rule(Down, &[FirstCounted(8)], "Q2_K")];
const WITH_IQ3_S: &[Rule] = &[
    rule(Embedding, &[], "IQ3_S"),
    rule(Value, &[], "IQ3_S"),
    rule(Down, &[FirstCounted(8)], "IQ3_S"),
    rule(AttentionOutput, &[], "IQ3_S"),
];
const ONE_BIT: &[Rule] = &[rule(AttentionOutput, &[], "IQ2_XXS")];
const EMBEDDING_4: &[Rule] = &[rule(Embedding, &[], "Q4_K")];

/// The rules of formats that have no mixture of their own.
const PLAIN: &[&[Rule]] = &[LOGITS_8, LOGITS, ATTENTION_8];

const fn plain(name: &'static str, file_type: u32) -> Mix {
    Mix { name, file_type, base: name, rules: PLAIN }
}

const fn mix(
    name: &'static str,
    file_type: u32,
    base: &'static str,
    rules: &'static [&'static [Rule]],
) -> Mix {
    Mix { name, file_type, base, rules }
}

/// Every mix, by the names and numbers that llama.cpp has for them.
static MIXES: &[Mix] = &[
    mix("F32", 0, "F32", &[]),
    mix("F16", 1, "F16", &[]),
    mix("BF16", 32, "BF16", &[]),
    mix("Q8_0", 7, "Q8_0", &[]),
    mix("MXFP4_MOE", 38, "Q8_0", &[&[rule(Any, &[OfExperts], "MXFP4")]]),
    plain("Q1_0", 40),
    mix("Q2_0", 41, "Q2_0", &[LOGITS_8, LOGITS, ATTENTION_8, EMBEDDING_4]),
    mix(
        "Q4_0",
        2,
        "Q4_0",
        &[LOGITS_8, LOGITS, ATTENTION_8, &[rule(Down, &[Importance, FirstPart(8)], "Q4_1")]],
    ),
    plain("Q4_1", 3),
    mix(
        "Q5_0",
        8,
        "Q5_0",
        &[LOGITS_8, LOGITS, ATTENTION_8, &[rule(Down, &[Importance, FirstPart(8)], "Q5_1")]],
    ),
    plain("Q5_1", 9),
    mix("TQ1_0", 36, "TQ1_0", &[LOGITS_8, LOGITS, ATTENTION_8, EMBEDDING_4]),
    mix("TQ2_0", 37, "TQ2_0", &[LOGITS_8, LOGITS, ATTENTION_8, EMBEDDING_4]),
    mix("IQ1_S", 24, "IQ1_S", &[LOGITS_8, FEW_BITS, WITH_Q2_K, ONE_BIT]),
    mix("IQ1_M", 31, "IQ1_M", &[LOGITS_8, FEW_BITS, WITH_Q2_K, ONE_BIT]),
    mix("IQ2_XXS", 19, "IQ2_XXS", &[LOGITS_8, FEW_BITS, WITH_Q2_K]),
    mix("IQ2_XS", 20, "IQ2_XS", &[LOGITS_8, FEW_BITS, WITH_Q2_K]),
    mix("IQ2_S", 28, "IQ2_XS", &[LOGITS_8, FEW_BITS, WITH_IQ3_S]),
    mix("IQ2_M", 29, "IQ2_S", &[LOGITS_8, FEW_BITS, WITH_IQ3_S]),
    mix(
        "IQ3_XXS",
        23,
        "IQ3_XXS",
        &[
            LOGITS_8,
            &[rule(Output, &[], "Q5_K"), rule(Embedding, &[], "IQ3_S")],
            ATTENTION_8,
            ATTENTION_5,
            &[
                rule(Value, &[Sharing(4), Deep], "Q5_K"),
                rule(Value, &[Sharing(4)], "Q4_K"),
                rule(Value, &[NoImportance], "IQ3_S"),
                rule(Key, &[], "IQ2_S"),
                rule(Query, &[], "IQ2_S"),
                rule(AttentionOutput, &[NotFalcon], "IQ3_S"),
                rule(Down, &[NoImportance, FirstPart(8)], "Q4_K"),
                rule(Down, &[NoImportance], "Q3_K"),
            ],
        ],
    ),
    mix(
        "IQ3_XS",
        22,
        "IQ3_S",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            ATTENTION_5,
            &[
                rule(Value, &[Sharing(4), Deep], "Q5_K"),
                rule(Value, &[Sharing(4)], "Q4_K"),
                rule(Key, &[], "IQ3_XXS"),
                rule(Query, &[], "IQ3_XXS"),
                rule(Gate, &[Middle], "IQ3_XXS"),
                rule(Up, &[Middle], "IQ3_XXS"),
            ],
        ],
    ),
    mix(
        "IQ3_S",
        26,
        "IQ3_S",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            ATTENTION_5,
            &[rule(Value, &[Sharing(4), Deep], "Q5_K"), rule(Value, &[Sharing(4)], "Q4_K")],
        ],
    ),
    mix(
        "IQ3_M",
        27,
        "IQ3_S",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            ATTENTION_5,
            DEEP,
            &[
                rule(Value, &[], "Q4_K"),
                rule(AttentionOutput, &[NotFalcon], "Q4_K"),
                rule(Down, &[FirstPart(8)], "Q4_K"),
                rule(Down, &[Experts(8), Spread], "Q4_K"),
            ],
        ],
    ),
    mix(
        "Q2_K",
        10,
        "Q2_K",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            ATTENTION_5,
            DEEP,
            &[
                rule(Value, &[Sharing(4)], "Q4_K"),
                rule(Value, &[], "Q3_K"),
                rule(AttentionOutput, &[NotFalcon], "Q3_K"),
                rule(Down, &[], "Q3_K"),
            ],
        ],
    ),
    mix(
        "Q2_K_S",
        21,
        "Q2_K",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            &[
                rule(Value, &[Sharing(4), Deep], "Q5_K"),
                rule(Value, &[Sharing(4)], "Q4_K"),
                rule(Down, &[FirstPart(8)], "Q4_K"),
            ],
        ],
    ),
    mix("Q3_K_S", 11, "Q3_K", &[LOGITS_8, LOGITS, ATTENTION_8, ATTENTION_5, DEEP]),
    mix(
        "Q3_K_M",
        12,
        "Q3_K",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            ATTENTION_5,
            DEEP,
            &[
                rule(Value, &[First(2)], "Q5_K"),
                rule(Value, &[], "Q4_K"),
                rule(AttentionOutput, &[NotFalcon], "Q4_K"),
                rule(Down, &[FirstPart(16)], "Q5_K"),
                rule(Down, &[NotFalcon], "Q4_K"),
                rule(Down, &[Spread], "Q4_K"),
            ],
        ],
    ),
    mix(
        "Q3_K_L",
        13,
        "Q3_K",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            &[
                rule(Value, &[], "Q5_K"),
                rule(AttentionOutput, &[Experts(8)], "Q3_K"),
                rule(AttentionOutput, &[Falcon], "Q4_K"),
                rule(AttentionOutput, &[], "Q5_K"),
                rule(Down, &[Falcon], "Q4_K"),
                rule(Down, &[], "Q5_K"),
            ],
        ],
    ),
    mix("IQ4_NL", 25, "IQ4_NL", &[LOGITS_8, LOGITS, ATTENTION_8, ATTENTION_5, NON_LINEAR]),
    mix("IQ4_XS", 30, "IQ4_XS", &[LOGITS_8, LOGITS, ATTENTION_8, ATTENTION_5, NON_LINEAR]),
    mix(
        "Q4_K_S",
        14,
        "Q4_K",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            ATTENTION_5,
            DEEP,
            &[rule(Value, &[First(4)], "Q5_K"), rule(Down, &[NotFalcon, FirstPart(8)], "Q5_K")],
        ],
    ),
    mix(
        "Q4_K_M",
        15,
        "Q4_K",
        &[
            LOGITS_8,
            LOGITS,
            ATTENTION_8,
            ATTENTION_5,
            &[rule(Value, &[Spread], "Q6_K")],
            DEEP,
            &[
                rule(Down, &[Falcon, FirstPart(16)], "Q6_K"),
                rule(Down, &[Falcon, Spread], "Q5_K"),
                rule(Down, &[NotFalcon, Spread], "Q6_K"),
            ],
        ],
    ),
    mix("Q5_K_S", 16, "Q5_K", PLAIN),
    mix(
        "Q5_K_M",
        17,
        "Q5_K",
        &[LOGITS_8, LOGITS, ATTENTION_8, &[rule(Value, &[Spread], "Q6_K"), rule(Down, &[Spread], "Q6_K")]],
    ),
    mix("Q6_K", 18, "Q6_K", PLAIN),
];

const NON_LINEAR: &[Rule] =
    &[rule(Value, &[Sharing(4)], "Q5_K"), rule(Down, &[NoImportance, FirstPart(8)], "Q5_K")];

/// Names that stand for another.
const ALIASES: &[(&str, &str)] = &[("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// The mix with a name, in any case, or a number.
pub(super) fn find(name: &str) -> Option<&'static Mix> {
    let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
    let name = alias.map_or(name, |(_, name)| name);
    let number = name.parse().ok();
    MIXES.iter().find(|m| m.name.eq_ignore_ascii_case(name) || Some(m.file_type) == number)
}

/// The names of all mixes.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    MIXES.iter().map(|m| m.name)
}

/// The format of a tensor by the rules of a mix, or of a format that has no mix and follows the general ones.
pub(super) fn choose(mix: Option<&'static Mix>, at: &Place, facts: &Facts) -> Option<&'static str> {
    let rules = mix.map_or(PLAIN, |m| m.rules);
    let mut all = rules.iter().copied().flatten();
    let found =
        all.find(|r| (r.part == at.part || r.part == Any) && r.when.iter().all(|w| w.holds(at, facts)));
    found.map(|r| r.format)
}

/// What takes the place of a format in rows that are not whole blocks of it; F16 where that does not fit either.
pub(super) fn instead_of(format: &str) -> &'static str {
    match format {
        "Q4_K" => "Q5_0",
        "Q5_K" => "Q5_1",
        "Q6_K" | "Q8_K" => "Q8_0",
        name if name.starts_with("IQ") => "IQ4_NL",
        _ => "Q4_0",
    }
}
