//! The file of a base model's probabilities, in llama.cpp's format.
//!
//! `_logits_`, then i32: the size of a piece, of the vocabulary, and the number of pieces; then the tokens of all
//! pieces as i32. Then, per piece and position that predicts, the logarithms of the probabilities in 16 bits: a step
//! and a smallest value as f32, and per token how many steps it is above that value. What is more than 16 nats below
//! the largest is the smallest value. An odd vocabulary has one number more, which means nothing.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use super::Probabilities;

const MAGIC: &[u8; 8] = b"_logits_";
/// How far below the largest logit differences still count.
const DEPTH: f32 = 16.0;

/// What the file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Tokens of a piece.
    pub size: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// The tokens of all pieces, as the text has them.
    pub tokens: Vec<u32>,
}

impl Header {
    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.tokens.len() / self.size.max(1)
    }

    fn row_bytes(&self) -> usize {
        row_bytes(self.vocab)
    }

    /// Positions of a piece that predict.
    fn rows(&self) -> usize {
        self.size - 1 - self.size / 2
    }
}

fn row_bytes(vocab: usize) -> usize {
    2 * (vocab.next_multiple_of(2) + 4)
}

/// Writes a file.
#[derive(Debug)]
pub struct Writer {
    to: BufWriter<File>,
    row: Vec<u8>,
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    /// * if it cannot be written
    /// * if a number is too large for the format
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let number = |n: usize| {
            let n = i32::try_from(n)
                .map_err(|_| io::Error::other(format!("{n} does not fit into the format")))?;
            Ok::<_, io::Error>(n.to_le_bytes())
        };
        let mut to = BufWriter::new(File::create(path)?);
        to.write_all(MAGIC)?;
        for n in [header.size, header.vocab, header.pieces()] {
            to.write_all(&number(n)?)?;
        }
        for &token in &header.tokens {
            to.write_all(&token.to_le_bytes())?;
        }
        Ok(Self { to, row: Vec::with_capacity(header.row_bytes()) })
    }

    /// Writes the probabilities of the next position.
    ///
    /// # Errors
    /// * if the file cannot be written
    pub fn row(&mut self, probabilities: &Probabilities<'_>) -> io::Result<()> {
        let Probabilities { logits, largest, log_sum, .. } = *probabilities;
        let smallest = logits.iter().fold(f32::INFINITY, |m, &x| m.min(x)).max(largest - DEPTH);
        let step = (largest - smallest) / 65535.0;
        let lowest = (f64::from(smallest - largest) - log_sum) as f32;
        self.row.clear();
        self.row.extend(step.to_le_bytes());
        self.row.extend(lowest.to_le_bytes());
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        for &logit in logits {
            let steps = if logit > smallest { (inverse * (logit - smallest)).round_ties_even() } else { 0.0 };
            // A float to integer cast saturates.
            self.row.extend((steps as u16).to_le_bytes());
        }
        self.row.resize(row_bytes(logits.len()), 0);
        self.to.write_all(&self.row)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// * if it cannot be written
    pub fn finish(mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The probabilities of one position.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    step: f32,
    lowest: f32,
    steps: &'a [[u8; 2]],
}

impl Row<'_> {
    /// The logarithm of the probability of a token.
    pub fn log(&self, token: u32) -> f32 {
        self.step * f32::from(u16::from_le_bytes(self.steps[token as usize])) + self.lowest
    }

    /// The logarithms of all tokens.
    pub fn logs(&self) -> impl Iterator<Item = f32> + '_ {
        self.steps.iter().map(|&steps| self.step * f32::from(u16::from_le_bytes(steps)) + self.lowest)
    }
}

/// Reads a file.
#[derive(Debug)]
pub struct Reader {
    from: BufReader<File>,
    header: Header,
    row: Vec<u8>,
}

impl Reader {
    /// Opens a file; nothing of what it says is believed before its length was compared.
    ///
    /// # Errors
    /// * if it cannot be read, or is no such file
    pub fn open(path: &Path) -> io::Result<Self> {
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut from = BufReader::with_capacity(1 << 20, file);
        let mut start = [0; 20];
        let head = MAGIC.len() as u64 + 12;
        if bytes < head {
            return Err(bad(format!("found {bytes} bytes, expected a base file of at least {head}")));
        }
        from.read_exact(&mut start)?;
        if !start.starts_with(MAGIC) {
            return Err(bad(format!(
                "found {:?} at byte 0, expected \"_logits_\" of a base file",
                String::from_utf8_lossy(&start[..8])
            )));
        }
        let number = |at: usize| i32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
        let (size, vocab, pieces) = (number(8), number(12), number(16));
        let sizes = (usize::try_from(size), usize::try_from(vocab), usize::try_from(pieces));
        let (Ok(size), Ok(vocab), Ok(pieces)) = sizes else {
            return Err(bad(format!("found a piece of {size}, a vocabulary of {vocab}, {pieces} pieces")));
        };
        if size < 4 || vocab == 0 || pieces == 0 {
            return Err(bad(format!(
                "found a piece of {size}, a vocabulary of {vocab}, {pieces} pieces, expected at least 4, 1, 1"
            )));
        }
        let rows = (size - 1 - size / 2) as u128;
        let per_piece = 4 * size as u128 + rows * row_bytes(vocab) as u128;
        let expected = u128::from(head) + pieces as u128 * per_piece;
        if u128::from(bytes) != expected {
            return Err(bad(format!(
                "found {bytes} bytes, expected {expected} for {pieces} pieces of {size} tokens"
            )));
        }
        let mut tokens = vec![0; size * pieces];
        let mut id = [0; 4];
        for token in &mut tokens {
            from.read_exact(&mut id)?;
            *token = u32::from_le_bytes(id);
        }
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(bad(format!("found token {token}, expected ids below {vocab}")));
        }
        Ok(Self { from, row: vec![0; row_bytes(vocab)], header: Header { size, vocab, tokens } })
    }

    /// What the file says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Rows that a piece has.
    pub fn rows(&self) -> usize {
        self.header.rows()
    }

    /// The probabilities of the next position.
    ///
    /// # Errors
    /// * if the file cannot be read
    /// * if the numbers of the row are not finite
    pub fn row(&mut self) -> io::Result<Row<'_>> {
        self.from.read_exact(&mut self.row)?;
        let (numbers, _) = self.row.as_chunks::<4>();
        let (step, lowest) = (f32::from_le_bytes(numbers[0]), f32::from_le_bytes(numbers[1]));
        if !(step.is_finite() && lowest.is_finite() && step >= 0.0) {
            let what = format!("found a step of {step} from {lowest}, expected finite numbers");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let (steps, _) = self.row[8..].as_chunks::<2>();
        Ok(Row { step, lowest, steps: &steps[..self.header.vocab] })
    }
}
