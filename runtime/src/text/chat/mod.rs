//! Chat templates: a conversation as the model's makers wrote it down.
//!
//! A template is a program from a file that is not trusted. It runs in an engine that knows nothing but the
//! conversation, with limits on work, memory and depth. The text around the messages is the template's and may
//! name special tokens; the messages are the user's and may not, whatever they contain: see [`shield`].

mod builtin;
mod engine;
mod json;
mod shape;
mod shield;

use std::sync::Arc;

use minijinja::Environment;
use serde_json::{Map, Value as Json, json};

use super::{TextError, Tokenizer};
use crate::files::Metadata;
use shield::{MarkSets, Shield};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// Makes a message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// What a template is told besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// End with the opening of an answer.
    pub add_generation_prompt: bool,
    /// Descriptions of tools, as the OpenAI API writes them; undefined in the template when absent.
    pub tools: Option<Vec<Json>>,
    /// Further variables, as `--chat-template-kwargs` gives them.
    pub variables: Map<String, Json>,
}

/// A compiled chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
    /// Whether the template takes tools as the text `functions`.
    old_style: bool,
    marks: Arc<MarkSets>,
}

const KEY: &str = "tokenizer.chat_template";

impl ChatTemplate {
    /// Compiles the template of a model file; `None` if the file has none.
    ///
    /// # Errors
    /// Says where the template is malformed. The model can still be used without it.
    pub fn from_metadata(m: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>, TextError> {
        m.str(KEY).map(|source| Self::new(source, tokenizer)).transpose()
    }

    /// Compiles a variant that the file has under a name of its own, such as `tool_use`.
    ///
    /// # Errors
    /// Says where the template is malformed.
    pub fn named(m: &Metadata, name: &str, tokenizer: &Tokenizer) -> Result<Option<Self>, TextError> {
        m.str(&format!("{KEY}.{name}")).map(|source| Self::new(source, tokenizer)).transpose()
    }

    /// Compiles one of the formats that are known by name.
    ///
    /// # Errors
    /// Lists the names if there is no such format.
    pub fn builtin(name: &str, tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let source = builtin::source(name).ok_or_else(|| {
            let names: Vec<&str> = builtin::names().collect();
            TextError::Template(format!("no format is called {name:?}; accepted: {}", names.join(", ")))
        })?;
        Self::new(&source, tokenizer)
    }

    /// The names of the built-in formats.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        builtin::names()
    }

    /// Compiles a template.
    ///
    /// # Errors
    /// Says where the template is malformed.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let text = |id: Option<u32>| {
            id.map_or_else(String::new, |id| String::from_utf8_lossy(tokenizer.token_text(id)).into_owned())
        };
        let environment = engine::compile(source)?;
        let free = engine::free_variables(&environment);
        Ok(Self {
            old_style: free.contains("functions") && !free.contains("tools"),
            environment,
            marks: Arc::new(MarkSets::new(tokenizer, source)),
            source: source.to_owned(),
            bos: text(tokenizer.bos()),
            eos: text(tokenizer.eos()),
        })
    }

    /// The template as the file has it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation as text.
    ///
    /// # Errors
    /// Returns the template's own refusal, or the limit that it ran into.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TextError> {
        let options = RenderOptions { add_generation_prompt, ..RenderOptions::default() };
        self.render_json(&as_json(messages), &options)
    }

    /// Renders messages of any shape, for tool calls and parts of content.
    ///
    /// Templates disagree on what they accept. If one fails, it is tried again with the arguments of tool calls as
    /// strings, and then with a leading system message put in front of the first question.
    ///
    /// # Errors
    /// Returns the template's own refusal of the conversation as it was given, or the limit that it ran into.
    pub fn render_json(&self, messages: &[Json], options: &RenderOptions) -> Result<String, TextError> {
        let mut messages = messages.to_vec();
        let objects = shape::arguments_as_objects(&mut messages);
        let refusal = match self.run(&messages, options) {
            Ok(text) => return Ok(text),
            Err(refusal) => refusal,
        };
        if objects {
            let mut strings = messages.clone();
            shape::arguments_as_strings(&mut strings);
            if let Ok(text) = self.run(&strings, options) {
                return Ok(text);
            }
        }
        if shape::fold_system(&mut messages)
            && let Ok(text) = self.run(&messages, options)
        {
            return Ok(text);
        }
        Err(refusal)
    }

    fn run(&self, messages: &[Json], options: &RenderOptions) -> Result<String, TextError> {
        engine::render(&self.environment, self.context(messages, options))
    }

    /// Renders a conversation as tokens.
    ///
    /// Marks that the template writes become special tokens, the same characters in a message do not. If the
    /// vocabulary puts a begin mark before texts, there is exactly one, whether or not the template writes it.
    ///
    /// # Errors
    /// Returns the template's own refusal, or the limit that it ran into.
    pub fn render_tokens(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, TextError> {
        let options = RenderOptions { add_generation_prompt, ..RenderOptions::default() };
        self.render_json_tokens(&as_json(messages), &options, tokenizer)
    }

    /// As [`render_tokens`](Self::render_tokens), for messages of any shape.
    ///
    /// # Errors
    /// Returns the template's own refusal, or the limit that it ran into.
    pub fn render_json_tokens(
        &self,
        messages: &[Json],
        options: &RenderOptions,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, TextError> {
        let mut messages = messages.to_vec();
        let mut options = options.clone();
        let mut shield = Shield::new(&self.marks, &self.source, &messages);
        for message in &mut messages {
            // An answer may hold the tags of reasoning and tools that templates look for.
            let own = message.get("role").and_then(Json::as_str) == Some("assistant");
            shield.cover(message, own);
        }
        for tool in options.tools.iter_mut().flatten() {
            shield.cover(tool, false);
        }
        for value in options.variables.values_mut() {
            shield.cover(value, false);
        }
        let text = self.render_json(&messages, &options)?;
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        shield.encode(&text, tokenizer, &mut ids)?;
        if let Some(bos) = tokenizer.bos() {
            let written = ids.iter().take_while(|&&id| id == bos).count();
            if written > 1 {
                ids.drain(1..written);
            } else if written == 0 && tokenizer.adds_bos() {
                ids.insert(0, bos);
            }
        }
        Ok(ids)
    }

    fn context(&self, messages: &[Json], options: &RenderOptions) -> Json {
        let mut context = options.variables.clone();
        context.insert("messages".into(), Json::Array(messages.to_vec()));
        context.insert("add_generation_prompt".into(), json!(options.add_generation_prompt));
        context.insert("bos_token".into(), json!(self.bos));
        context.insert("eos_token".into(), json!(self.eos));
        if let Some(tools) = &options.tools {
            context.insert("tools".into(), Json::Array(tools.clone()));
        }
        if self.old_style {
            // The convention before tools had a name of their own.
            let tools = options.tools.clone().unwrap_or_default();
            let text = serde_json::to_string_pretty(&tools).unwrap_or_default();
            context.entry("functions").or_insert(Json::String(text));
            context.entry("datetime").or_insert_with(|| json!(engine::date_and_time()));
        }
        Json::Object(context)
    }
}

fn as_json(messages: &[Message]) -> Vec<Json> {
    messages.iter().map(|m| json!({ "role": m.role, "content": m.content })).collect()
}

#[cfg(test)]
mod template_tests;
#[cfg(test)]
mod tests;
