//! What the tests of the whole program share: the command under test, the real models, the oracle's data, and
//! small model files made on the spot.
//!
//! A test that needs a model and does not find it fails and says how to fetch it: what did not run must not pass.

mod command;
mod gguf;
mod oracle;

pub use command::{Ended, Quantsmith, program};
pub use gguf::{Gguf, tiny_llama};
pub use oracle::{Oracle, Position, Prompt};

use std::path::{Path, PathBuf};

/// The path of the program under test.
#[macro_export]
macro_rules! program {
    () => {
        $crate::program(env!("CARGO_BIN_EXE_quantsmith-under-test"))
    };
}

/// The command under test, to be given arguments and run.
#[macro_export]
macro_rules! quantsmith {
    ($($arg:expr),* $(,)?) => {
        $crate::Quantsmith::new($crate::program!())$(.arg($arg))*
    };
}

/// A real model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealModel {
    /// SmolLM2-135M-Instruct in Q4_1: byte-level BPE, a chat template, no BOS.
    SmolLm2,
    /// gemma-3-270m in Q4_K_M: SPM, BOS, sliding windows.
    Gemma3,
}

impl RealModel {
    /// Both.
    pub const ALL: [Self; 2] = [Self::SmolLm2, Self::Gemma3];

    /// The name of its oracle and its argument of `tests/fetch-models.sh`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmolLm2 => "smollm2",
            Self::Gemma3 => "gemma3",
        }
    }

    /// The file.
    ///
    /// # Panics
    /// When it is not there.
    pub fn path(self) -> PathBuf {
        let file = match self {
            Self::SmolLm2 => "SmolLM2-135M-Instruct.Q4_1.gguf",
            Self::Gemma3 => "gemma-3-270m-q4_k_m.gguf",
        };
        let path = repository().join("models").join(file);
        assert!(
            path.is_file(),
            "{} is missing: tests/fetch-models.sh {} fetches it",
            path.display(),
            self.name()
        );
        path
    }
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of `tests/data/`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}
