//! The flags that keep an answer to a grammar, a JSON schema or a regular expression.
//!
//! What can be read without a model is read before one is loaded. A fault in a flag is a wrong request; a fault in
//! a file is the file's.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use quantsmith::Model;
use quantsmith::text::{Constraint, Constraints, TextError, Tokenizer};
use serde_json::Value;

use crate::failure::Failure;
use crate::prompt;

/// What the answer must look like: at most one of these.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Form of the answer")]
#[group(multiple = false)]
pub(crate) struct ConstraintArgs {
    /// Grammar in GBNF that the answer must follow
    #[arg(long, value_name = "GBNF", allow_hyphen_values = true)]
    grammar: Option<String>,
    /// File with the grammar; - is standard input
    #[arg(long, value_name = "FILE")]
    grammar_file: Option<PathBuf>,
    /// JSON schema that the answer must follow; {} is any JSON
    #[arg(short, long, value_name = "SCHEMA", allow_hyphen_values = true)]
    json_schema: Option<String>,
    /// File with the JSON schema (-jf); - is standard input
    #[arg(long, value_name = "FILE")]
    json_schema_file: Option<PathBuf>,
    /// Regular expression that must match the whole answer
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    regex: Option<String>,
}

/// A form that was asked for, read but not yet known to be one.
#[derive(Debug, PartialEq)]
pub(crate) struct Form {
    /// The flag or the file that it comes from.
    origin: String,
    from_file: bool,
    kind: Kind,
}

/// A form by its notation.
#[derive(Debug, PartialEq)]
enum Kind {
    Gbnf(String),
    Schema(Value),
    Regex(String),
}

impl ConstraintArgs {
    /// The form that was asked for, if any.
    ///
    /// # Errors
    /// Says which file cannot be read, where a schema is no JSON, or where a grammar is none.
    pub(crate) fn read(&self) -> Result<Option<Form>, Failure> {
        let inline = |flag: &str, kind| Form { origin: flag.to_owned(), from_file: false, kind };
        let form = if let Some(text) = &self.grammar {
            inline("--grammar", Kind::Gbnf(text.clone()))
        } else if let Some(pattern) = &self.regex {
            inline("--regex", Kind::Regex(pattern.clone()))
        } else if let Some(text) = &self.json_schema {
            let schema = serde_json::from_str(text)
                .map_err(|e| Failure::usage(format!("--json-schema: not JSON: {e}")))?;
            inline("--json-schema", Kind::Schema(schema))
        } else if let Some(path) = &self.grammar_file {
            let text = prompt::read_file(path)?;
            Form { origin: path.display().to_string(), from_file: true, kind: Kind::Gbnf(text) }
        } else if let Some(path) = &self.json_schema_file {
            let origin = path.display().to_string();
            let schema = serde_json::from_str(&prompt::read_file(path)?)
                .map_err(|e| Failure::run(format!("{origin}: not JSON: {e}")))?;
            Form { origin, from_file: true, kind: Kind::Schema(schema) }
        } else {
            return Ok(None);
        };
        if let Kind::Gbnf(text) = &form.kind {
            Constraints::check_gbnf(text).map_err(|error| form.refused(&error))?;
        }
        Ok(Some(form))
    }
}

impl Form {
    /// Prepares the form for a model's vocabulary.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn prepare(&self, model: &Model) -> Result<Constraint, Failure> {
        // The parser keeps a tokenizer of its own.
        let tokenizer = Arc::new(Tokenizer::from_metadata(model.metadata())?);
        let constraints = Constraints::new(tokenizer)?;
        let made = match &self.kind {
            Kind::Gbnf(text) => constraints.gbnf(text),
            Kind::Schema(schema) => constraints.json_schema(schema),
            Kind::Regex(pattern) => constraints.regex(pattern),
        };
        made.map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &TextError) -> Failure {
        let message = match error {
            TextError::Constraint(fault) => format!("{}: {fault}", self.origin),
            other => format!("{}: {other}", self.origin),
        };
        if self.from_file { Failure::run(message) } else { Failure::usage(message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        form: ConstraintArgs,
    }

    fn line(args: &[&str]) -> Result<ConstraintArgs, clap::Error> {
        Line::try_parse_from(std::iter::once(&"x").chain(args)).map(|line| line.form)
    }

    fn read(args: &[&str]) -> Result<Option<Form>, Failure> {
        line(args).expect("the flags parse").read()
    }

    #[test]
    fn forms_come_from_flags() {
        assert_eq!(read(&[]), Ok(None));
        let kind = |args: &[&str]| read(args).expect("valid").expect("a form").kind;
        assert_eq!(kind(&["--grammar", "root ::= \"a\""]), Kind::Gbnf("root ::= \"a\"".into()));
        assert_eq!(kind(&["-j", "{}"]), Kind::Schema(serde_json::json!({})));
        assert_eq!(kind(&["--regex", "-?[0-9]+"]), Kind::Regex("-?[0-9]+".into()));
    }

    #[test]
    fn one_form_is_enough() {
        assert!(line(&["--grammar", "a", "--regex", "b"]).is_err());
        assert!(line(&["-j", "{}", "--json-schema-file", "b"]).is_err());
    }

    #[test]
    fn a_fault_in_a_flag_is_the_requests_and_in_a_file_the_files() {
        let error = read(&["-j", "{"]).expect_err("no JSON");
        assert!(
            error.exit_code() == 2 && error.line().is_some_and(|l| l.contains("--json-schema: not JSON"))
        );
        let path = std::env::temp_dir().join(format!("quantsmith-schema-{}", std::process::id()));
        std::fs::write(&path, "{").expect("the temporary folder is writable");
        let name = path.to_str().expect("the path is text");
        let error = read(&["--json-schema-file", name]).expect_err("no JSON");
        assert!(error.exit_code() == 1 && error.line().is_some_and(|l| l.contains(name)));
        let error = read(&["--grammar-file", name]).expect_err("no grammar");
        assert!(error.exit_code() == 1 && error.line().is_some_and(|l| l.contains(name)));
        let line = read(&["--grammar", "root ::= x"]).expect_err("no grammar").line().expect("a line");
        assert_eq!(
            line,
            "error: --grammar: line 1 column 10: found the rule \"x\", which is nowhere defined; accepted: a defined rule"
        );
        std::fs::remove_file(&path).expect("the file is there");
        assert_eq!(read(&["--grammar-file", name]).expect_err("gone").exit_code(), 1);
    }
}
