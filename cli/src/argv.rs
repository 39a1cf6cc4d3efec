//! llama.cpp's flags of one dash and several letters, rewritten before the arguments are parsed.
//!
//! Commands are copied from one program to the next, so `-ngl 99` or `-no-cnv` must mean here what it means
//! there; the parser knows only one letter after one dash. Just these exact words are rewritten: not after `--`,
//! and not where they are the value of the flag before them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// The words and what they stand for.
const WORDS: &[(&str, &str)] = &[
    ("-bf", "--binary-file"),
    ("-cnv", "--conversation"),
    ("-co", "--color"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-fa", "--flash-attn"),
    ("-jf", "--json-schema-file"),
    ("-lv", "--verbosity"),
    ("-ngl", "--n-gpu-layers"),
    ("-no-cnv", "--no-conversation"),
    ("-nr", "--no-repack"),
    ("-oe", "--output-err"),
    ("-pg", "--prompt-gen"),
    ("-sp", "--special"),
    ("-st", "--single-turn"),
    ("-sys", "--system-prompt"),
    ("-sysf", "--system-prompt-file"),
    ("-tb", "--threads-batch"),
    ("-ub", "--ubatch-size"),
];

/// Words that people know and that ask for something that is not there, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("-cmoe", GPU),
    ("-dev", GPU),
    ("-hf", DOWNLOAD),
    ("-hff", DOWNLOAD),
    ("-hfr", DOWNLOAD),
    ("-hft", DOWNLOAD),
    ("-mg", GPU),
    ("-mu", DOWNLOAD),
    ("-ncmoe", GPU),
    ("-ot", GPU),
    ("-sm", GPU),
    ("-ts", GPU),
];

const GPU: &str = "distributes work over GPUs, and this program uses the CPU only";
const DOWNLOAD: &str = "downloads a model, which this program does not do: give a file with -m FILE";

/// Which flags take a value, by every spelling: read from the definition of the command line.
pub(crate) struct Flags(BTreeSet<String>);

impl Flags {
    /// Collects the flags of a command and of all its subcommands.
    pub(crate) fn of(command: &clap::Command) -> Self {
        let mut arities = BTreeMap::new();
        collect(command, &mut arities);
        Self(arities.into_iter().filter_map(|(name, takes_value)| takes_value.then_some(name)).collect())
    }

    fn takes_value(&self, flag: &str) -> bool {
        self.0.contains(flag)
    }
}

/// Notes each spelling of each flag and whether a value must follow it.
///
/// One spelling has one arity in all commands, so that a line can be read before its command is known.
fn collect(command: &clap::Command, into: &mut BTreeMap<String, bool>) {
    for arg in command.get_arguments().filter(|a| !a.is_positional()) {
        let takes_value =
            arg.get_action().takes_values() && arg.get_num_args().is_none_or(|n| n.min_values() > 0);
        let longs = arg
            .get_long_and_visible_aliases()
            .into_iter()
            .flatten()
            .chain(arg.get_all_aliases().into_iter().flatten());
        let shorts = arg
            .get_short_and_visible_aliases()
            .into_iter()
            .flatten()
            .chain(arg.get_all_short_aliases().into_iter().flatten());
        for name in longs.map(|l| format!("--{l}")).chain(shorts.map(|s| format!("-{s}"))) {
            let before = into.insert(name.clone(), takes_value);
            debug_assert!(
                before.is_none_or(|b| b == takes_value),
                "{name} takes a value in one command only"
            );
        }
    }
    for sub in command.get_subcommands() {
        collect(sub, into);
    }
}

/// Rewrites the known words. The first argument is the name of the program.
///
/// # Errors
/// A word that asks for something that this program has not got.
pub(crate) fn rewrite(
    args: impl IntoIterator<Item = OsString>,
    flags: &Flags,
) -> Result<Vec<OsString>, String> {
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    while let Some(arg) = args.next() {
        let Some(text) = arg.to_str() else {
            out.push(arg);
            continue;
        };
        if text == "--" {
            out.push(arg);
            out.extend(args);
            break;
        }
        if let Some((word, reason)) = REFUSED.iter().find(|(word, _)| *word == text) {
            return Err(format!("{word} {reason}"));
        }
        let flag = WORDS.iter().find(|(word, _)| *word == text).map_or(text, |(_, long)| long);
        let value = if flags.takes_value(flag) { args.next() } else { None };
        out.push(flag.into());
        out.extend(value);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    fn rewritten(line: &str) -> Result<String, String> {
        let args = line.split(' ').map(OsString::from);
        let out = rewrite(args, &Flags::of(&Cli::command()))?;
        Ok(out.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn words_become_long_flags() {
        assert_eq!(
            rewritten("quantsmith run -m x -ngl 99 -no-cnv -ub 64 -sys S -st").as_deref(),
            Ok(
                "quantsmith run -m x --n-gpu-layers 99 --no-conversation --ubatch-size 64 --system-prompt S --single-turn"
            )
        );
    }

    #[test]
    fn only_exact_words_are_rewritten() {
        for line in
            ["q run -cnvx", "q run -ub5", "q run -UB 5", "q run --sys x", "q run -c 5", "q run -no", "-cnv"]
        {
            assert_eq!(rewritten(line).as_deref(), Ok(line));
        }
    }

    #[test]
    fn a_word_that_is_the_value_of_a_flag_stays() {
        assert_eq!(rewritten("q run -p -cnv -cnv").as_deref(), Ok("q run -p -cnv --conversation"));
        assert_eq!(rewritten("q run --prompt -sys").as_deref(), Ok("q run --prompt -sys"));
        assert_eq!(rewritten("q run -sys -cnv").as_deref(), Ok("q run --system-prompt -cnv"));
        assert_eq!(rewritten("q run -p -hf").as_deref(), Ok("q run -p -hf"));
        assert_eq!(rewritten("q run --prompt=x -cnv").as_deref(), Ok("q run --prompt=x --conversation"));
    }

    #[test]
    fn a_flag_whose_value_is_optional_does_not_hide_the_next_word() {
        assert_eq!(rewritten("q run -fa -cnv").as_deref(), Ok("q run --flash-attn --conversation"));
        assert_eq!(rewritten("q run -fa on -cnv").as_deref(), Ok("q run --flash-attn on --conversation"));
    }

    #[test]
    fn nothing_is_rewritten_after_two_dashes() {
        assert_eq!(rewritten("q run -st -- -st -hf").as_deref(), Ok("q run --single-turn -- -st -hf"));
        assert_eq!(rewritten("q run -p -- -st").as_deref(), Ok("q run -p -- --single-turn"));
    }

    #[test]
    fn a_flag_at_the_end_whose_value_is_missing_is_left_to_the_parser() {
        assert_eq!(rewritten("q run -ub").as_deref(), Ok("q run --ubatch-size"));
    }

    #[test]
    fn what_is_not_there_is_refused_with_the_reason() {
        assert!(rewritten("q run -hf a/b").is_err_and(|e| e.contains("-m FILE")));
        assert!(rewritten("q run -dev cuda0").is_err_and(|e| e.contains("CPU only")));
    }

    #[test]
    fn every_word_stands_for_a_flag_of_the_command_line() {
        let mut arities = BTreeMap::new();
        collect(&Cli::command(), &mut arities);
        for (word, long) in WORDS {
            assert!(arities.contains_key(*long), "{word} stands for {long}, which does not exist");
        }
    }

    #[cfg(unix)]
    #[test]
    fn arguments_that_are_not_utf8_pass_unchanged() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(vec![b'-', 0xff]);
        let out = rewrite(["q".into(), odd.clone(), "-st".into()], &Flags::of(&Cli::command()));
        assert_eq!(out, Ok(vec!["q".into(), odd, "--single-turn".into()]));
    }
}
