//! Loading a model: the progress bar, what there is to say about the model, and its warnings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use quantsmith::files::ModelFile;
use quantsmith::{LoadOptions, Model, Progress};

use crate::App;
use crate::args::ModelArgs;
use crate::failure::Failure;
use crate::output::{excerpt, note, warn};
use crate::table::{bytes, count, counted, grouped};

/// How long loading may take before a progress bar appears.
const MOMENT: Duration = Duration::from_millis(400);

impl App {
    /// Loads the model with what the flags ask for, and says on standard error what it is.
    pub(crate) fn load(&self, args: &ModelArgs) -> Result<Arc<Model>, Failure> {
        for warning in args.compat.warnings(self.global.threads()) {
            warn(&warning);
        }
        let options = LoadOptions {
            registry: self.registry.clone(),
            isa: self.global.isa().map(str::to_owned),
            threads: self.global.threads(),
            context: Some(args.ctx_size),
            ubatch: args.ubatch(),
            cache: args.cache_types(),
            pack: !args.no_repack,
            progress: progress_bar(self.global.quiet),
        };
        let model = Model::load(&args.model, options)?;
        for warning in model.warnings() {
            warn(warning);
        }
        if !self.global.quiet {
            introduce(&model);
        }
        if self.global.verbose > 0 {
            note(crate::commands::plan::kernel_table(&model.plan()).plain().trim_end());
        }
        Ok(model)
    }
}

/// A progress bar on standard error that appears when loading takes longer than a moment, where a person sees it.
fn progress_bar(quiet: bool) -> Option<Box<dyn FnMut(Progress) + Send>> {
    if quiet || !std::io::stderr().is_terminal() {
        return None;
    }
    let start = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    Some(Box::new(move |progress| {
        if bar.is_none() && start.elapsed() < MOMENT {
            return;
        }
        // Dropped with this closure, when the model is there or has failed, the bar leaves no trace.
        let bar = bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("loading {wide_bar} {bytes} of {total_bytes}");
            let bar = ProgressBar::new(progress.total).with_finish(ProgressFinish::AndClear);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_position(progress.done);
    }))
}

/// Says what model this is and how it will run.
fn introduce(model: &Model) {
    let plan = model.plan();
    let name = model.metadata().str("general.name").map(|name| excerpt(name, 60));
    note(&format!(
        "model:   {}{}, {}, {} parameters, {}",
        name.map(|n| format!("{n}, ")).unwrap_or_default(),
        excerpt(model.architecture(), 30),
        types(model.file()),
        count(model.parameters()),
        bytes(model.file().file_size()),
    ));
    note(&format!(
        "context: {} tokens, {} of cache; {} in all",
        grouped(model.context() as u64),
        bytes(plan.kv_bytes),
        bytes(plan.total_bytes),
    ));
    note(&format!("cpu:     {}, {}", model.isa().name(), counted(model.threads(), "thread")));
}

/// The types of a file's tensors that make up at least a hundredth of it, the largest share first.
fn types(file: &ModelFile) -> String {
    let mut shares: BTreeMap<&str, u64> = BTreeMap::new();
    for tensor in file.tensors() {
        *shares.entry(tensor.type_name).or_default() += tensor.bytes;
    }
    let all: u64 = shares.values().sum();
    let mut list: Vec<(&str, u64)> =
        shares.into_iter().filter(|(_, n)| n.saturating_mul(100) >= all).collect();
    list.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), *name));
    list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" + ")
}
