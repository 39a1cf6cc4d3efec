//! Ending by a signal without leaving half a file behind.

use std::thread;

use quantsmith::files::discard_unfinished;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::{note, warn};

/// The exit code of a program that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

/// From now on an interrupt removes what is being written and ends the program. Called by commands that write files.
pub(crate) fn discard_on_interrupt() {
    let mut signals = match Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        Ok(signals) => signals,
        Err(error) => {
            return warn(&format!("an interrupt would leave a file '.quantsmith-*.partial' behind: {error}"));
        }
    };
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            discard_unfinished(|| {
                note("error: interrupted; what was half written is removed");
                std::process::exit(INTERRUPTED)
            });
        }
    });
}
