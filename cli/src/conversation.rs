//! A conversation: the messages so far, and what a person can do with them beside saying something.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use quantsmith::text::{ChatTemplate, Message};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::generate::End;
use crate::output::note;
use crate::prompt;
use crate::table::{counted, grouped};
use crate::talk::{Answer, Talk};
use crate::terminal::{Terminal, Typed};

/// A command of the conversation.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    argument: &'static str,
    what: &'static str,
}

/// The commands, as `/help` lists them.
pub(crate) const COMMANDS: &[Command] = &[
    Command { name: "help", argument: "", what: "show this list" },
    Command { name: "reset", argument: "", what: "forget the conversation; the system prompt stays" },
    Command { name: "regen", argument: "", what: "answer the last message again" },
    Command { name: "system", argument: "[TEXT]", what: "show the system prompt, or set it" },
    Command { name: "save", argument: "FILE", what: "save the conversation as JSON" },
    Command { name: "load", argument: "FILE", what: "go on with a saved conversation" },
    Command { name: "stats", argument: "", what: "show how full the context is, and the speed" },
    Command { name: "exit", argument: "", what: "end; so does Ctrl-D" },
];

const HINTS: &str = "Ctrl-C stops an answer; a \\ at the end of a line goes on in the next one; // begins a message \
                     with a slash";

/// What a conversation does next.
enum Next {
    Go,
    Stop,
}

/// Messages that a model answers.
pub(crate) struct Conversation<'a> {
    pub(crate) talk: Talk<'a>,
    template: &'a ChatTemplate,
    system: Option<String>,
    /// Questions and answers in turn.
    messages: Vec<Message>,
    /// Whether the oldest messages are dropped when there is no room for all.
    drop_oldest: bool,
    /// Where the conversation was saved, or came from: the one file that is overwritten.
    file: Option<PathBuf>,
}

impl<'a> Conversation<'a> {
    /// An empty conversation.
    pub(crate) fn new(
        talk: Talk<'a>,
        template: &'a ChatTemplate,
        system: Option<String>,
        drop_oldest: bool,
    ) -> Self {
        Self { talk, template, system, messages: Vec::new(), drop_oldest, file: None }
    }

    /// Says something, and returns the answer; if it cannot be had, nothing was said.
    pub(crate) fn say(&mut self, text: String) -> Result<Answer, Failure> {
        let before = self.messages.clone();
        self.messages.push(Message::new("user", text));
        let answer = self.answer();
        let unheard = |a: &Answer| a.end == End::Interrupted && a.tokens.is_empty();
        if answer.as_ref().map_or(true, unheard) {
            self.messages = before;
        }
        answer
    }

    /// Answers the last message again.
    fn regenerate(&mut self) -> Result<Answer, Failure> {
        let Some(last) = self.messages.pop() else {
            return Err(Failure::usage("/regen: nothing has been said yet"));
        };
        let answer = self.answer();
        if answer.as_ref().map_or(true, |a| a.tokens.is_empty()) {
            self.messages.push(last);
        }
        answer
    }

    /// Answers the last message.
    fn answer(&mut self) -> Result<Answer, Failure> {
        let tokens = self.render()?;
        let answer = self.talk.respond(tokens)?;
        self.messages.push(Message::new("assistant", answer.text.clone()));
        Ok(answer)
    }

    fn all(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text.as_str()));
        system.chain(self.messages.iter().cloned()).collect()
    }

    /// The conversation as tokens, if need be and asked for without its oldest messages.
    fn render(&mut self) -> Result<Vec<u32>, Failure> {
        let model = self.talk.model;
        let (tokenizer, context) = (model.tokenizer(), model.context());
        let mut tokens = self.template.render_tokens(&self.all(), true, tokenizer)?;
        if tokens.len() <= context {
            return Ok(tokens);
        }
        if !self.drop_oldest {
            let (tokens, room) = (counted(tokens.len(), "token"), counted(context, "token"));
            return Err(Failure::run(format!(
                "the context is full: the conversation has {tokens} with this message, and the context holds {room}: \
                 -c gives a larger one, --context-shift drops the oldest messages, /reset starts afresh"
            )));
        }
        let before = self.messages.len();
        // Half of the context is left free, so that this does not come again with each message.
        while tokens.len() > context / 2 {
            // A conversation begins with a question.
            let Some(next) = self.messages.iter().skip(1).position(|m| m.role == "user") else { break };
            self.messages.drain(..=next);
            tokens = self.template.render_tokens(&self.all(), true, tokenizer)?;
        }
        prompt::check_fits(tokens.len(), context)?;
        let dropped = counted(before - self.messages.len(), "message");
        note(&format!("the context is full: the oldest {dropped} were dropped"));
        Ok(tokens)
    }

    /// Talks with the person at the terminal, who may be answered first; once, unless it is to go on.
    pub(crate) fn interact(
        &mut self,
        terminal: &mut Terminal,
        first: Option<String>,
        go_on: bool,
    ) -> Result<(), Failure> {
        terminal.remark("/help lists the commands");
        let mut next = first;
        loop {
            let text = match next.take() {
                Some(text) => text,
                None => match terminal.ask()? {
                    Typed::Text(text) => text,
                    Typed::Cancelled => {
                        terminal.remark("Ctrl-D or /exit ends the conversation");
                        continue;
                    }
                    Typed::End => return Ok(()),
                },
            };
            let said = text.trim();
            if said.is_empty() {
                continue;
            }
            let result = match said.strip_prefix('/') {
                Some(command) if !command.starts_with('/') => self.obey(command, terminal),
                slashed => {
                    let text = slashed.map_or_else(|| text.clone(), str::to_owned);
                    self.say(text).map(|answer| {
                        self.remark_end(&answer, terminal);
                        if go_on { Next::Go } else { Next::Stop }
                    })
                }
            };
            match result {
                Ok(Next::Go) => {}
                Ok(Next::Stop) => return Ok(()),
                Err(Failure::Closed) => return Err(Failure::Closed),
                // What went wrong with one message does not end the conversation.
                Err(failure) if go_on => {
                    if let Some(line) = failure.line() {
                        note(&line);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn remark_end(&self, answer: &Answer, terminal: &Terminal) {
        match answer.end {
            End::Interrupted => terminal.remark("stopped; /regen answers again"),
            End::ContextFull => terminal.remark(&format!(
                "stopped: the context of {} is full; -c gives a larger one, /reset starts afresh",
                counted(self.talk.model.context(), "token")
            )),
            End::Limit => {
                let made = counted(answer.tokens.len(), "token");
                terminal.remark(&format!("stopped after {made}, as -n says"));
            }
            End::Text => {}
        }
    }

    /// Does what a command says.
    fn obey(&mut self, command: &str, terminal: &Terminal) -> Result<Next, Failure> {
        let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let argument = argument.trim();
        match name {
            "help" => {
                for Command { name, argument, what } in COMMANDS {
                    terminal.remark(&format!("/{:<15}{what}", format!("{name} {argument}")));
                }
                terminal.remark(HINTS);
            }
            "reset" => {
                self.messages.clear();
                self.talk.session.reset();
                terminal.remark("the conversation is forgotten");
            }
            "regen" => {
                let answer = self.regenerate()?;
                self.remark_end(&answer, terminal);
            }
            "system" if argument.is_empty() => {
                terminal.remark(self.system.as_deref().unwrap_or("there is no system prompt"));
            }
            "system" => {
                self.system = Some(argument.to_owned());
                terminal.remark("the system prompt is set, for all of the conversation");
            }
            "save" => {
                let path = self.save(argument)?;
                let messages = counted(self.all().len(), "message");
                terminal.remark(&format!("{messages} saved in {}", path.display()));
            }
            "load" => {
                self.load(argument)?;
                terminal.remark(&format!("{} read from {argument}", counted(self.all().len(), "message")));
            }
            "stats" => self.statistics(terminal),
            "exit" | "quit" | "bye" => return Ok(Next::Stop),
            other => {
                return Err(Failure::usage(format!(
                    "there is no command /{other}; /help lists them, and //{other} says /{other}"
                )));
            }
        }
        Ok(Next::Go)
    }

    fn statistics(&self, terminal: &Terminal) {
        let (used, room) = (self.talk.session.position(), self.talk.model.context());
        terminal.remark(&format!(
            "context: {} of {} tokens, {}",
            grouped(used as u64),
            grouped(room as u64),
            counted(self.messages.len(), "message")
        ));
        for line in self.talk.timings.lines(self.talk.model.load_ms()) {
            terminal.remark(&line);
        }
    }

    fn save(&mut self, name: &str) -> Result<PathBuf, Failure> {
        let path = match (name, &self.file) {
            ("", None) => return Err(Failure::usage("/save: a file is to be named")),
            ("", Some(file)) => file.clone(),
            (name, _) => PathBuf::from(name),
        };
        let messages: Vec<Value> =
            self.all().iter().map(|m| json!({"role": m.role, "content": m.content})).collect();
        let text = format!("{:#}\n", Value::Array(messages));
        let own = self.file.as_deref() == Some(&path);
        let file = if own { File::create(&path) } else { File::create_new(&path) };
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| Failure::run(format!("{}: cannot write: {e}", path.display())))?;
        self.file = Some(path.clone());
        Ok(path)
    }

    fn load(&mut self, name: &str) -> Result<(), Failure> {
        if name.is_empty() {
            return Err(Failure::usage("/load: a file is to be named"));
        }
        let path = Path::new(name);
        let (system, messages) = read_messages(&prompt::read_file(path)?)
            .map_err(|what| Failure::run(format!("{}: {what}", path.display())))?;
        (self.system, self.messages, self.file) = (system, messages, Some(path.to_owned()));
        Ok(())
    }
}

/// Reads a saved conversation: the system prompt, and the messages.
fn read_messages(text: &str) -> Result<(Option<String>, Vec<Message>), String> {
    let list: Vec<Value> = serde_json::from_str(text)
        .map_err(|e| format!("no saved conversation: {e}; accepted: a list of messages as JSON"))?;
    let mut system = None;
    let mut messages = Vec::with_capacity(list.len());
    for (i, message) in list.iter().enumerate() {
        let field = |name: &str| {
            let text = message.get(name).and_then(Value::as_str);
            text.ok_or_else(|| format!("message {i} has no text called {name:?}"))
        };
        let (role, content) = (field("role")?, field("content")?);
        match (role, messages.len() % 2) {
            ("system", _) if i == 0 => system = Some(content.to_owned()),
            ("user", 0) | ("assistant", 1) => messages.push(Message::new(role, content)),
            _ => {
                return Err(format!(
                    "message {i} is of {role:?}; accepted: user and assistant in turn, after one of system at most"
                ));
            }
        }
    }
    if messages.len() % 2 == 1 {
        return Err("the last message has no answer; accepted: a conversation that ends with one".to_owned());
    }
    Ok((system, messages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_conversation_is_read_and_others_are_refused() {
        let text = r#"[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]"#;
        let (system, messages) = read_messages(text).expect("a conversation");
        assert_eq!(system.as_deref(), Some("s"));
        assert_eq!(messages, [Message::new("user", "q"), Message::new("assistant", "a")]);
        assert_eq!(read_messages("[]"), Ok((None, vec![])));
        for (bad, word) in [
            ("", "no saved conversation"),
            ("{}", "no saved conversation"),
            ("[1]", "message 0 has no text called \"role\""),
            (r#"[{"role":"user"}]"#, "message 0 has no text called \"content\""),
            (r#"[{"role":"assistant","content":"a"}]"#, "message 0 is of \"assistant\""),
            (
                r#"[{"role":"user","content":"a"},{"role":"system","content":"a"}]"#,
                "message 1 is of \"system\"",
            ),
            (r#"[{"role":"user","content":"a"}]"#, "has no answer"),
            (r#"[{"role":"user","content":5}]"#, "message 0 has no text called \"content\""),
        ] {
            let error = read_messages(bad).expect_err(bad);
            assert!(error.contains(word), "{error}");
        }
    }
}
