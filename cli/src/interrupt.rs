//! Ending by a signal without leaving half a file behind.

use quantsmith::files::discard_unfinished;

use crate::output::{note, warn};

/// The exit code of a program that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

/// From now on an interrupt removes what is being written and ends the program. Called by commands that write files.
pub(crate) fn discard_on_interrupt() {
    let set = ctrlc::set_handler(|| {
        discard_unfinished(|| {
            note("error: interrupted; what was half written is removed");
            std::process::exit(INTERRUPTED)
        });
    });
    if let Err(error) = set {
        warn(&format!("an interrupt would leave a file '.quantsmith-*.partial' behind: {error}"));
    }
}
