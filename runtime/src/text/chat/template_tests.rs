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

#[test]
fn published_templates_render_a_conversation() {
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let Some(failed) = failures(&conversation(), &options, "What is 2+2?") else { return };
    for (name, error) in &failed {
        eprintln!("{name}: {error}");
    }
    assert!(failed.len() <= 1);
}

#[test]
fn published_templates_render_tools() {
    let (messages, options) = with_tools();
    let Some(failed) = failures(&messages, &options, "get_weather") else { return };
    for (name, error) in &failed {
        eprintln!("{name}: {error}");
    }
    assert!(failed.len() <= 4);
}
