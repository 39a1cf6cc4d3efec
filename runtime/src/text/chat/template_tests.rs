//! Published templates of many models.
//!
//! `QUANTSMITH_TEMPLATES` names a folder with `NAME.jinja` files, such as llama.cpp's `models/templates`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::tests::tokenizer;
use super::{ChatTemplate, RenderOptions};

fn templates() -> Option<BTreeMap<String, String>> {
    let Some(folder) = std::env::var_os("QUANTSMITH_TEMPLATES").map(PathBuf::from) else {
        eprintln!("skipped: QUANTSMITH_TEMPLATES is not set");
        return None;
    };
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    Some(
        entries
            .filter(|path| path.extension().is_some_and(|e| e == "jinja"))
            .map(|path| {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                (name, std::fs::read_to_string(&path).unwrap())
            })
            .collect(),
    )
}

fn conversation() -> Vec<Json> {
    vec![
        json!({"role": "system", "content": "You are helpful."}),
        json!({"role": "user", "content": "Hello"}),
        json!({"role": "assistant", "content": "Hi there"}),
        json!({"role": "user", "content": "What is 2+2?"}),
    ]
}

fn with_tools() -> (Vec<Json>, RenderOptions) {
    let messages = vec![
        json!({"role": "system", "content": "You are helpful."}),
        json!({"role": "user", "content": "How warm is it in Paris?"}),
        json!({"role": "assistant", "content": "", "tool_calls": [{
            "id": "call00001", "type": "function",
            "function": {"name": "get_weather", "arguments": {"city": "Paris"}}
        }]}),
        json!({"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "21"}),
    ];
    let tools = vec![json!({"type": "function", "function": {
        "name": "get_weather",
        "description": "Says how warm it is.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city."}},
            "required": ["city"]
        }
    }})];
    (messages, RenderOptions { add_generation_prompt: true, tools: Some(tools), ..RenderOptions::default() })
}

/// Renders all templates and returns what failed.
fn failures(
    messages: &[Json],
    options: &RenderOptions,
    must_contain: &str,
) -> Option<BTreeMap<String, String>> {
    let t = tokenizer(true);
    let mut failed = BTreeMap::new();
    let templates = templates()?;
    let count = templates.len();
    for (name, source) in templates {
        let result = ChatTemplate::new(&source, &t).and_then(|c| c.render_json(messages, options));
        match result {
            Ok(text) if text.contains(must_contain) => {}
            Ok(text) => drop(failed.insert(name, format!("lacks {must_contain:?}: {text}"))),
            Err(error) => drop(failed.insert(name, error.to_string())),
        }
    }
    eprintln!("{} of {count} templates render", count - failed.len());
    Some(failed)
}

/// How the best-known families write the conversation: computed with Jinja itself, in the settings of the
/// transformers library. The last refuses system messages, so it is in the question.
const RENDERINGS: &[(&str, &str)] = &[
    (
        "Qwen-Qwen2.5-7B-Instruct",
        "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
    ),
    (
        "Qwen3.5-4B",
        "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n",
    ),
    (
        "meta-llama-Llama-3.1-8B-Instruct",
        "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nYou are helpful.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhat is 2+2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    (
        "mistralai-Mistral-Nemo-Instruct-2407",
        "<s>[INST]Hello[/INST]Hi there<|im_end|>[INST]You are helpful.\n\nWhat is 2+2?[/INST]",
    ),
    (
        "google-gemma-4-31B-it",
        "<s><|turn>system\nYou are helpful.<turn|>\n<|turn>user\nHello<turn|>\n<|turn>model\nHi there<turn|>\n<|turn>user\nWhat is 2+2?<turn|>\n<|turn>model\n<|channel>thought\n<channel|>",
    ),
    (
        "microsoft-Phi-3.5-mini-instruct",
        "<|system|>\nYou are helpful.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi there<|end|>\n<|user|>\nWhat is 2+2?<|end|>\n<|assistant|>\n",
    ),
    (
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "<s>You are helpful.<｜User｜>Hello<｜Assistant｜>Hi there<｜end▁of▁sentence｜><｜User｜>What is 2+2?<｜Assistant｜><think>\n",
    ),
    (
        "GLM-4.6",
        "[gMASK]<sop><|system|>\nYou are helpful.<|user|>\nHello<|assistant|>\n<think></think>\nHi there<|user|>\nWhat is 2+2?<|assistant|>",
    ),
    (
        "moonshotai-Kimi-K2",
        "<|im_system|>system<|im_middle|>You are helpful.<|im_end|><|im_user|>user<|im_middle|>Hello<|im_end|><|im_assistant|>assistant<|im_middle|>Hi there<|im_end|><|im_user|>user<|im_middle|>What is 2+2?<|im_end|><|im_assistant|>assistant<|im_middle|>",
    ),
    (
        "ibm-granite-granite-3.3-2B-Instruct",
        "<|start_of_role|>system<|end_of_role|>You are helpful.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hi there<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>What is 2+2?<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    ),
    (
        "llama-cpp-rwkv-world",
        "<s>System: You are helpful.\n\nUser: Hello\n\nAssistant: Hi there\n\nUser: What is 2+2?\n\nAssistant:",
    ),
    (
        "google-gemma-2-2b-it",
        "<s><start_of_turn>user\nYou are helpful.\n\nHello<end_of_turn>\n<start_of_turn>model\nHi there<end_of_turn>\n<start_of_turn>user\nWhat is 2+2?<end_of_turn>\n<start_of_turn>model\n",
    ),
];

#[test]
fn known_families_render_as_their_makers_meant() {
    let Some(templates) = templates() else { return };
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    for (name, expected) in RENDERINGS {
        let template = ChatTemplate::new(&templates[*name], &tokenizer(true)).unwrap();
        assert_eq!(template.render_json(&conversation(), &options).unwrap(), *expected, "{name}");
    }
}

#[test]
fn published_templates_render_a_conversation() {
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let Some(failed) = failures(&conversation(), &options, "What is 2+2?") else { return };
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn published_templates_render_tools() {
    let (messages, options) = with_tools();
    let Some(failed) = failures(&messages, &options, "How warm is it") else { return };
    // It has no role for what a tool answers, and says so.
    let expected = ["google-gemma-2-2b-it"];
    assert!(failed.keys().eq(expected), "{failed:#?}");
    assert!(failed.values().all(|error| error.contains("refuses")), "{failed:#?}");
}
