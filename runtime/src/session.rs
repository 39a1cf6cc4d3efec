//! A session: one conversation with a model, with its cache, its working memory and its threads.

use crate::error::Error;
use crate::exec::{Clock, Pass};
use crate::graph::arena::Arena;
use crate::graph::plan::Plan;
use crate::kv::Cache;
use crate::model::Model;
use crate::threads::team::Team;
use quantsmith_kernels::ops::attention::Visible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Which positions' logits are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Those of the last token.
    Last,
    /// Those of all tokens.
    All,
    /// None: the tokens only go into the context.
    None,
}

/// Time spent on one kind of step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// The kind, as the plan names it: `product`, `attend`, `merge` or `rows`.
    pub kind: &'static str,
    /// The formats of the matrices that were multiplied, with blanks between; empty for other steps.
    pub formats: String,
    /// The operations that were fused into the step.
    pub ops: String,
    /// How many such steps have run.
    pub count: u64,
    /// The time in all, from the opening of the step to that of the next one.
    pub time: Duration,
    /// The time that all threads together were at work on them; the rest of threads times `time` they waited.
    pub busy: Duration,
    /// Bytes of the matrices that were multiplied, each counted once for each step.
    pub bytes: u64,
}

/// One conversation.
pub struct Session {
    model: Arc<Model>,
    arena: Arena,
    cache: Cache,
    team: Team,
    /// The tokens in the context, with room for all that it holds.
    tokens: Vec<u32>,
    /// Tokens that have been in the context at once since it was last empty.
    written: usize,
    visible: [Vec<Visible>; 2],
    /// Where the logits of the last evaluated position are, in bytes.
    logits: Option<usize>,
    profile: Option<Profile>,
}

/// Times of the steps of both plans.
struct Profile {
    clock: Clock,
    single: Vec<Spent>,
    batch: Vec<Spent>,
}

/// What a step of a plan has taken.
#[derive(Clone, Copy, Default)]
struct Spent {
    count: u64,
    time: Duration,
    busy: Duration,
}

impl Session {
    /// Starts a session.
    ///
    /// # Errors
    /// * if the system gives no memory or threads
    pub fn new(model: &Arc<Model>) -> Result<Session, Error> {
        let tokens = model.ubatch();
        let visible = || vec![Visible::default(); tokens];
        Ok(Session {
            arena: Arena::new(
                model.arena_bytes(),
                "values of the graph",
                "ask for a smaller batch with -ub",
            )?,
            cache: Cache::new(&model.engine.cache)?,
            team: Team::new(model.threads())?,
            tokens: Vec::with_capacity(model.context()),
            written: 0,
            visible: [visible(), visible()],
            logits: None,
            profile: None,
            model: model.clone(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// How many tokens are in the context.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens in the context.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Empties the context.
    pub fn reset(&mut self) {
        self.tokens.clear();
        (self.written, self.logits) = (0, None);
    }

    /// Keeps what the context begins with and these tokens, too, but never all of them, so that evaluating the others
    /// gives logits; returns how many stay.
    ///
    /// Where a sliding window has moved on too far to go back, none stay.
    pub fn resume(&mut self, tokens: &[u32]) -> usize {
        let common = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let keep = common.min(tokens.len().saturating_sub(1));
        if self.truncate(keep).is_err() {
            self.reset();
        }
        self.position()
    }

    /// Makes room: drops `count` tokens after the first `keep`, and evaluates those that follow again.
    ///
    /// The result is that of a fresh evaluation of the tokens that are left. To move keys and values instead would be
    /// cheaper and wrong, since they know of the tokens that are gone.
    ///
    /// # Errors
    /// * if there are not that many tokens, or none is left to evaluate; then nothing has changed
    /// * if a thread panicked, now or before
    pub fn shift(&mut self, keep: usize, count: usize) -> Result<(), Error> {
        let have = self.position();
        let dropped = keep.checked_add(count).filter(|&end| end < have);
        let Some(end) = dropped else {
            return Err(Error::Shift { keep, count, have });
        };
        let left = [&self.tokens[..keep], &self.tokens[end..]].concat();
        let kept = self.resume(&left);
        self.eval(&left[kept..], Want::Last, &mut |_, _| {})
    }

    /// Cuts the context to its first `position` tokens.
    ///
    /// # Errors
    /// * if it has fewer
    /// * if a sliding window has moved on and what it would need again is gone
    pub fn truncate(&mut self, position: usize) -> Result<(), Error> {
        if position > self.position() {
            let why = format!("it has {}", self.position());
            return Err(Error::Truncate { to: position, why });
        }
        let cache = &self.model.engine.cache;
        if position == 0 {
            self.reset();
            return Ok(());
        }
        if let Some(reach) = cache.reach() {
            let (needed, oldest) = (position.saturating_sub(reach), cache.oldest(self.written));
            if needed < oldest {
                let why = format!(
                    "the sliding window needs positions from {needed} on, and those before {oldest} are gone"
                );
                return Err(Error::Truncate { to: position, why });
            }
        }
        if position < self.position() {
            self.tokens.truncate(position);
            self.logits = None;
        }
        Ok(())
    }

    /// Evaluates tokens at the end of the context, and calls `sink` with position and logits for those asked for, in
    /// order.
    ///
    /// # Errors
    /// * if a token is not in the vocabulary, or there is no room for all of them; then nothing was evaluated
    /// * if a thread panicked, now or before
    pub fn eval(
        &mut self,
        tokens: &[u32],
        want: Want,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        let (vocab, context) = (self.model.vocab_size(), self.model.context());
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= vocab) {
            return Err(Error::Token { id, vocab });
        }
        if tokens.len() > context - self.position() {
            return Err(Error::ContextFull { have: self.position(), need: tokens.len(), context });
        }
        let count = tokens.len().div_ceil(self.model.ubatch());
        for (i, batch) in tokens.chunks(self.model.ubatch()).enumerate() {
            let outputs = match want {
                Want::All => 0..batch.len(),
                Want::Last if i + 1 == count => batch.len() - 1..batch.len(),
                Want::Last | Want::None => 0..0,
            };
            self.batch(batch, outputs, sink)?;
        }
        Ok(())
    }

    /// The logits of the last position whose logits were computed; empty before the first.
    pub fn logits(&self) -> &[f32] {
        match self.logits {
            // SAFETY: no pass runs while the session is borrowed, and only passes write.
            Some(at) => unsafe { self.arena.view(at, self.model.vocab_size()) },
            None => &[],
        }
    }

    /// Starts to measure the time of each step, or stops.
    pub fn set_profile(&mut self, on: bool) {
        let steps = |plan: &Plan| plan.steps.len();
        let (single, batch) = (steps(&self.model.single), steps(&self.model.batch));
        self.profile = on.then(|| Profile {
            clock: Clock::new(single.max(batch)),
            single: vec![Spent::default(); single],
            batch: vec![Spent::default(); batch],
        });
    }

    /// The times since [`Session::set_profile`] or the last call of this, the longest first.
    pub fn take_profile(&mut self) -> Vec<StepTime> {
        let mut kinds: Vec<StepTime> = Vec::new();
        let Some(profile) = &mut self.profile else { return kinds };
        let model = &self.model;
        let plans = [(&model.single, &mut profile.single), (&model.batch, &mut profile.batch)];
        for (plan, all) in plans {
            for (step, spent) in plan.steps.iter().zip(all) {
                let Spent { count, time, busy } = std::mem::take(spent);
                if count == 0 {
                    continue;
                }
                let (formats, bytes) = model.multiplied(step);
                let same = |known: &&mut StepTime| known.ops == step.name && known.formats == formats;
                let bytes = bytes * count;
                match kinds.iter_mut().find(same) {
                    Some(known) => {
                        known.count += count;
                        known.time += time;
                        known.busy += busy;
                        known.bytes += bytes;
                    }
                    None => {
                        let (kind, ops) = (step.body.name(), step.name.clone());
                        kinds.push(StepTime { kind, formats, ops, count, time, busy, bytes });
                    }
                }
            }
        }
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.time));
        kinds
    }

    /// Tokens that have been in the context at once since it was last empty.
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    /// Visits the memory of the cache that holds so many positions, always in the same order.
    pub(crate) fn each_cell(
        &mut self,
        written: usize,
        visit: &mut dyn FnMut(&mut [u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        self.cache.each_cell(&self.model.engine.cache, written, visit)
    }

    /// Takes the cache for what these tokens, and those before them up to `written`, have left in it.
    pub(crate) fn set_tokens(&mut self, tokens: &[u32], written: usize) {
        self.reset();
        self.tokens.extend_from_slice(tokens);
        self.written = written;
    }

    /// Evaluates at most as many tokens as a plan is for.
    fn batch(
        &mut self,
        tokens: &[u32],
        outputs: Range<usize>,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        let model = self.model.clone();
        let position = self.position();
        let plan = if tokens.len() == 1 { &model.single } else { &model.batch };
        let window = model.engine.params.layers.iter().find_map(|layer| layer.window);
        for (visible, window) in self.visible.iter_mut().zip([None, window]) {
            for (i, visible) in visible.iter_mut().take(tokens.len()).enumerate() {
                *visible = Visible::causal(position + i, window);
            }
        }
        let end = if outputs.is_empty() { plan.outputs_from } else { plan.steps.len() };
        let mut first = outputs.start;
        // Even when no logits are asked for, the layers run.
        loop {
            let last = outputs.end.min(first + plan.outputs);
            let pass = Pass {
                engine: &model.engine,
                plan,
                arena: &self.arena,
                cache: &self.cache,
                tokens,
                position,
                outputs: first..last,
                end,
                threads: model.threads(),
                visible: [&self.visible[0][..tokens.len()], &self.visible[1][..tokens.len()]],
                clock: self.profile.as_ref().map(|p| &p.clock),
            };
            let from = if first == outputs.start { 0 } else { plan.outputs_from };
            self.team.run(&pass, from)?;
            if let Some(profile) = &mut self.profile {
                profile.take(plan, from..end);
            }
            for row in first..last {
                let at = plan.logits.at + (row - first) * plan.logits.cols * size_of::<f32>();
                self.logits = Some(at);
                // SAFETY: the pass is over, and only passes write.
                sink(position + row, unsafe { self.arena.view(at, plan.logits.cols) });
            }
            first = last;
            if first >= outputs.end {
                break;
            }
        }
        self.tokens.extend_from_slice(tokens);
        self.written = self.written.max(self.tokens.len());
        Ok(())
    }
}

impl Profile {
    /// Adds the times of the steps that have run.
    fn take(&mut self, plan: &Plan, steps: Range<usize>) {
        let spent = if plan.tokens == 1 { &mut self.single } else { &mut self.batch };
        for step in steps {
            let (time, busy) = self.clock.take(step);
            spent[step].count += 1;
            spent[step].time += time;
            spent[step].busy += busy;
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.model)
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}
