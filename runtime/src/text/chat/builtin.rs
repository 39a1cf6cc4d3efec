//! Conversation formats by name, for files without a template or with one that fails.

use std::fmt::Write;

/// How one format writes turns: what stands before and after each kind of message.
struct Format {
    names: &'static [&'static str],
    system: (&'static str, &'static str),
    user: (&'static str, &'static str),
    answer: (&'static str, &'static str),
    /// What opens an answer.
    open: &'static str,
    /// The system message stands inside the first question instead of before it.
    inside: bool,
}

const fn turns(
    names: &'static [&'static str],
    system: (&'static str, &'static str),
    user: (&'static str, &'static str),
    answer: (&'static str, &'static str),
) -> Format {
    Format { names, system, user, answer, open: answer.0, inside: false }
}

impl Format {
    const fn inside(self) -> Self {
        Self { inside: true, ..self }
    }

    const fn opening(self, open: &'static str) -> Self {
        Self { open, ..self }
    }
}

/// The formats. Each is known from its model's card or published template.
const FORMATS: &[Format] = &[
    turns(
        &["chatml"],
        ("<|im_start|>system\n", "<|im_end|>\n"),
        ("<|im_start|>user\n", "<|im_end|>\n"),
        ("<|im_start|>assistant\n", "<|im_end|>\n"),
    ),
    turns(
        &["llama2", "llama2-sys"],
        ("<<SYS>>\n", "\n<</SYS>>\n\n"),
        ("[INST] ", " [/INST]"),
        (" ", " </s>"),
    )
    .inside()
    .opening(""),
    turns(
        &["llama3"],
        ("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
        ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    ),
    turns(
        &["llama4"],
        ("<|header_start|>system<|header_end|>\n\n", "<|eot|>"),
        ("<|header_start|>user<|header_end|>\n\n", "<|eot|>"),
        ("<|header_start|>assistant<|header_end|>\n\n", "<|eot|>"),
    ),
    turns(
        &["gemma"],
        ("", "\n\n"),
        ("<start_of_turn>user\n", "<end_of_turn>\n"),
        ("<start_of_turn>model\n", "<end_of_turn>\n"),
    )
    .inside(),
    turns(&["mistral-v1"], ("", "\n\n"), (" [INST] ", " [/INST]"), (" ", "</s>")).inside().opening(""),
    turns(&["mistral-v3"], ("", "\n\n"), ("[INST] ", "[/INST]"), (" ", "</s>")).inside().opening(""),
    turns(&["mistral-v3-tekken"], ("", "\n\n"), ("[INST]", "[/INST]"), ("", "</s>")).inside(),
    turns(&["mistral-v7"], ("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"), ("[INST] ", "[/INST]"), (" ", "</s>"))
        .opening(""),
    turns(
        &["mistral-v7-tekken"],
        ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        ("[INST]", "[/INST]"),
        ("", "</s>"),
    ),
    turns(
        &["phi3"],
        ("<|system|>\n", "<|end|>\n"),
        ("<|user|>\n", "<|end|>\n"),
        ("<|assistant|>\n", "<|end|>\n"),
    ),
    turns(
        &["phi4"],
        ("<|im_start|>system<|im_sep|>", "<|im_end|>"),
        ("<|im_start|>user<|im_sep|>", "<|im_end|>"),
        ("<|im_start|>assistant<|im_sep|>", "<|im_end|>"),
    ),
    turns(&["zephyr"], ("<|system|>\n", "</s>\n"), ("<|user|>\n", "</s>\n"), ("<|assistant|>\n", "</s>\n")),
    turns(&["vicuna"], ("", "\n\n"), ("USER: ", "\n"), ("ASSISTANT: ", "</s>\n")).opening("ASSISTANT:"),
    turns(&["alpaca"], ("", "\n\n"), ("### Instruction:\n", "\n\n"), ("### Response:\n", "\n\n")),
    turns(
        &["command-r"],
        ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
    ),
    turns(&["deepseek"], ("", ""), ("### Instruction:\n", "\n"), ("### Response:\n", "\n<|EOT|>\n")),
    turns(&["deepseek2"], ("", "\n\n"), ("User: ", "\n\n"), ("Assistant: ", "<｜end▁of▁sentence｜>"))
        .opening("Assistant:"),
    turns(&["deepseek3"], ("", ""), ("<｜User｜>", ""), ("<｜Assistant｜>", "<｜end▁of▁sentence｜>")),
    turns(
        &["openchat"],
        ("", "<|end_of_turn|>"),
        ("GPT4 Correct User: ", "<|end_of_turn|>"),
        ("GPT4 Correct Assistant: ", "<|end_of_turn|>"),
    )
    .opening("GPT4 Correct Assistant:"),
    turns(
        &["granite"],
        ("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"),
        ("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
        ("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"),
    ),
    turns(&["falcon3"], ("<|system|>\n", "\n"), ("<|user|>\n", "\n"), ("<|assistant|>\n", "<|endoftext|>\n")),
    turns(&["chatglm4", "glm4"], ("<|system|>\n", ""), ("<|user|>\n", ""), ("<|assistant|>\n", "")),
    turns(
        &["exaone3"],
        ("[|system|]", "[|endofturn|]\n"),
        ("[|user|]", "\n"),
        ("[|assistant|]", "[|endofturn|]\n"),
    ),
    turns(
        &["kimi-k2"],
        ("<|im_system|>system<|im_middle|>", "<|im_end|>"),
        ("<|im_user|>user<|im_middle|>", "<|im_end|>"),
        ("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
    ),
    turns(&["rwkv-world"], ("", "\n\n"), ("User: ", "\n\n"), ("Assistant: ", "\n\n")).opening("Assistant:"),
];

/// All names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().flat_map(|format| format.names.iter().copied())
}

/// The template of a format.
pub(super) fn source(name: &str) -> Option<String> {
    let format = FORMATS.iter().find(|format| format.names.contains(&name))?;
    let quote = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let turn = |(before, after): (&str, &str)| {
        format!("{{{{ {} + message.content | trim + {} }}}}", quote(before), quote(after))
    };
    let (before, after) = format.user;
    let (opens, closes) = format.system;
    let mut out = String::from("{% set ns = namespace(system='') %}{% for message in messages %}");
    let _ = if format.inside {
        write!(
            out,
            "{{% if message.role == 'system' %}}{{% set ns.system = ns.system + {} + message.content | trim + {} %}}",
            quote(opens),
            quote(closes)
        )
    } else {
        write!(out, "{{% if message.role == 'system' %}}{}", turn(format.system))
    };
    let _ = write!(
        out,
        "{{% elif message.role == 'assistant' %}}{}{{% else %}}\
         {{{{ {} + ns.system + message.content | trim + {} }}}}{{% set ns.system = '' %}}\
         {{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}{{{{ {} }}}}{{% endif %}}",
        turn(format.answer),
        quote(before),
        quote(after),
        quote(format.open)
    );
    Some(out)
}
