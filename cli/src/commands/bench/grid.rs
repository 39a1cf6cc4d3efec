//! Lists and ranges of numbers, as llama-bench takes them: `1,2,4`, `1-4`, `0-512+128`, `1-64*2`.

use std::str::FromStr;

/// Numbers that a flag stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers(pub(crate) Vec<usize>);

/// Most numbers of a range: more is a slip of the keyboard.
const MOST: usize = 1000;

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for part in text.split(',') {
            range(part.trim(), &mut all)?;
        }
        Ok(Numbers(all))
    }
}

fn range(text: &str, into: &mut Vec<usize>) -> Result<(), String> {
    let accepted = || format!("'{text}' is no number or range; accepted: 512, 1-8, 0-4096+512, 1-64*2");
    let number = |text: &str| text.parse::<usize>().map_err(|_| accepted());
    let Some((first, rest)) = text.split_once('-') else {
        into.push(number(text)?);
        return Ok(());
    };
    let first = number(first)?;
    let (last, step): (usize, Box<dyn Fn(usize) -> Option<usize>>) =
        if let Some((last, step)) = rest.split_once('+') {
            let step = number(step)?;
            (number(last)?, Box::new(move |n| n.checked_add(step)))
        } else if let Some((last, factor)) = rest.split_once('*') {
            let factor = number(factor)?;
            (number(last)?, Box::new(move |n| n.checked_mul(factor)))
        } else {
            (number(rest)?, Box::new(|n| n.checked_add(1)))
        };
    if last < first {
        return Err(format!("'{text}' ends before it begins"));
    }
    let mut at = first;
    for _ in 0..MOST {
        into.push(at);
        match step(at) {
            Some(next) if next <= last && next > at => at = next,
            Some(next) if next > last => return Ok(()),
            None => return Ok(()),
            Some(_) => return Err(format!("'{text}' does not get on from {at}")),
        }
    }
    Err(format!("'{text}' stands for more than {MOST} numbers"))
}

/// A prompt and the tokens generated after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) usize, pub(crate) usize);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = text
            .split_once(',')
            .and_then(|(p, n)| Some(Pair(p.trim().parse().ok()?, n.trim().parse().ok()?)));
        pair.ok_or_else(|| format!("'{text}' is no pair; accepted: PROMPT,GENERATED, for instance 512,128"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Vec<usize> {
        text.parse::<Numbers>().expect(text).0
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(numbers("512"), [512]);
        assert_eq!(numbers("1,2, 4"), [1, 2, 4]);
        assert_eq!(numbers("1-4"), [1, 2, 3, 4]);
        assert_eq!(numbers("0-512+128"), [0, 128, 256, 384, 512]);
        assert_eq!(numbers("1-60*2,7"), [1, 2, 4, 8, 16, 32, 7]);
        assert_eq!(numbers("3-3"), [3]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in
            ["", "x", "1-", "-1", "5-1", "0-10*2", "1-10+0", "1-100000", "1,,2", "99999999999999999999999"]
        {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
        assert_eq!("512,128".parse(), Ok(Pair(512, 128)));
        assert!("512".parse::<Pair>().is_err());
    }
}
