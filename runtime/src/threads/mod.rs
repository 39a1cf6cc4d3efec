//! Threads: how many by default, and the team that runs a forward pass.
//!
//! The number comes from what this process may use: its affinity, its share of CPU time (control groups), and the
//! physical cores behind the logical ones, since two threads of one core only take turns at the same vector units.
//! [`Topology`] is plain data, so the choice is tested with made-up machines.
//!
//! `team` is the project's own: a general pool allocates for each call it is given, and a decode step may not
//! allocate. Rayon serves for the one-off work of loading.

use std::collections::BTreeSet;

pub(crate) mod team;

/// A logical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalCpu {
    /// Its number.
    pub id: usize,
    /// The physical core it belongs to, unique over the machine; `None` when the system does not say.
    pub core: Option<usize>,
}

/// The CPUs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The logical CPUs of the affinity mask.
    pub allowed: Vec<LogicalCpu>,
    /// How many CPUs' worth of time the process may take, rounded down and at least one; `None`: no limit.
    pub quota: Option<usize>,
}

/// A number of threads and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadChoice {
    /// How many threads.
    pub threads: usize,
    /// The reason, for `quantsmith cpu`.
    pub reason: String,
}

impl Topology {
    /// Asks the system.
    pub fn detect() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let allowed: Vec<_> = match system::allowed() {
            Some(ids) if !ids.is_empty() => {
                ids.into_iter().map(|id| LogicalCpu { id, core: system::core(id) }).collect()
            }
            _ => (0..count).map(|id| LogicalCpu { id, core: None }).collect(),
        };
        // The standard library takes affinity and quota into account; less than the affinity is the quota.
        let quota = (count < allowed.len()).then_some(count);
        Topology { allowed, quota }
    }

    /// The default number of threads.
    pub fn choose(&self) -> ThreadChoice {
        let logical = self.allowed.len().max(1);
        let known: BTreeSet<_> = self.allowed.iter().filter_map(|cpu| cpu.core).collect();
        let unknown = self.allowed.iter().filter(|cpu| cpu.core.is_none()).count();
        let cores = (known.len() + unknown).max(1);
        let reason = match self.quota {
            Some(quota) if quota < cores => {
                return ThreadChoice {
                    threads: quota.max(1),
                    reason: format!("a quota of {} of {cores} cores", quota.max(1)),
                };
            }
            _ if cores < logical => format!("{cores} cores with {logical} hardware threads"),
            _ => format!("{cores} cores"),
        };
        ThreadChoice { threads: cores, reason }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;

    /// The affinity mask of this process.
    pub(super) fn allowed() -> Option<Vec<usize>> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        super::parse_list(line.trim())
    }

    /// A number for the physical core of a logical CPU: the lowest logical CPU on it.
    pub(super) fn core(id: usize) -> Option<usize> {
        let path = format!("/sys/devices/system/cpu/cpu{id}/topology/thread_siblings_list");
        super::parse_list(fs::read_to_string(path).ok()?.trim())?.into_iter().min()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn allowed() -> Option<Vec<usize>> {
        None
    }

    pub(super) fn core(_: usize) -> Option<usize> {
        None
    }
}

/// Parses a list as the kernel writes it: `0-3,8,10-11`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has such lists"))]
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut ids = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More CPUs than any machine has: not a list of CPUs.
        if last < first || last > 1 << 16 {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cores: &[Option<usize>], quota: Option<usize>) -> ThreadChoice {
        let allowed = cores.iter().enumerate().map(|(id, &core)| LogicalCpu { id, core }).collect();
        Topology { allowed, quota }.choose()
    }

    #[test]
    fn the_default_is_the_number_of_physical_cores_that_the_process_may_use() {
        let plain = machine(&[Some(0), Some(1), Some(2), Some(3)], None);
        assert_eq!((plain.threads, plain.reason.as_str()), (4, "4 cores"));
        let smt = machine(&[Some(0), Some(0), Some(2), Some(2)], None);
        assert_eq!((smt.threads, smt.reason.as_str()), (2, "2 cores with 4 hardware threads"));
        // Eight fast cores without hardware threads beside four with them.
        let hybrid: Vec<_> = (0..8).map(Some).chain([8, 8, 10, 10].map(Some)).collect();
        assert_eq!(machine(&hybrid, None).threads, 10);
    }

    #[test]
    fn an_affinity_mask_counts_the_cores_that_are_in_it() {
        let of = |ids: &[usize], core: fn(usize) -> usize| {
            let allowed = ids.iter().map(|&id| LogicalCpu { id, core: Some(core(id)) }).collect();
            Topology { allowed, quota: None }.choose().threads
        };
        // Siblings are n and n + 8, as servers number them, or 2n and 2n + 1.
        assert_eq!(of(&[0, 1, 2, 8, 9, 10], |id| id % 8), 3);
        assert_eq!(of(&[0, 8], |id| id % 8), 1);
        assert_eq!(of(&[1, 3, 5, 7], |id| id / 2 * 2), 4);
        assert_eq!(of(&[2, 3], |id| id / 2 * 2), 1);
        // Six fast cores with hardware threads and eight slow ones without, of which a mask leaves the slow ones.
        let hybrid = |id: usize| if id < 12 { id / 2 * 2 } else { id };
        assert_eq!(of(&(0..20).collect::<Vec<_>>(), hybrid), 14);
        assert_eq!(of(&(12..20).collect::<Vec<_>>(), hybrid), 8);
        // Some cores are known and others are not, as where only some are online.
        let partly = [Some(0), Some(0), None, None];
        assert_eq!(machine(&partly, None).threads, 3);
        assert_eq!(machine(&partly, Some(2)).reason, "a quota of 2 of 3 cores");
    }

    #[test]
    fn a_quota_below_the_cores_wins_and_one_above_does_not() {
        let cores: Vec<_> = (0..8).map(Some).collect();
        let limited = machine(&cores, Some(4));
        assert_eq!((limited.threads, limited.reason.as_str()), (4, "a quota of 4 of 8 cores"));
        assert_eq!(machine(&cores, Some(16)).threads, 8);
        assert_eq!(machine(&cores, Some(0)).threads, 1);
    }

    #[test]
    fn a_system_that_says_nothing_still_gives_at_least_one_thread() {
        assert_eq!(machine(&[None, None, None], None).threads, 3);
        assert_eq!(machine(&[], None).threads, 1);
        assert!(Topology::detect().choose().threads >= 1);
    }

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        assert_eq!(parse_list(""), Some(vec![]));
        assert_eq!(parse_list("3-1"), None);
        assert_eq!(parse_list("0-99999999999"), None);
        assert_eq!(parse_list("x"), None);
    }
}
