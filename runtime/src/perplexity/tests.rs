use super::base::{Header, Reader, Writer};
use super::*;
use std::io::ErrorKind;

#[test]
fn means_have_errors() {
    let mut mean = Mean::default();
    assert_eq!((mean.count(), mean.mean(), mean.error()), (0, 0.0, 0.0));
    for x in [1.0, 2.0, 3.0, 4.0] {
        mean.push(x);
    }
    assert_eq!(mean.mean(), 2.5);
    // The deviation is the root of 5/4, over the root of 3.
    assert!((mean.error() - (1.25f64 / 3.0).sqrt()).abs() < 1e-12);
    assert!((mean.perplexity().0 - 2.5f64.exp()).abs() < 1e-9);
}

#[test]
fn equal_logits_cost_the_logarithm_of_their_number() {
    let probabilities = Probabilities::new(&[3.0; 8]).unwrap();
    assert!((probabilities.cost(5) - 8f64.ln()).abs() < 1e-6);
    assert_eq!(probabilities.best(), 0);
    let far = Probabilities::new(&[-1e30, 1000.0, f32::NEG_INFINITY]).unwrap();
    assert_eq!((far.best(), far.cost(1)), (1, 0.0));
    assert!(far.cost(2).is_infinite());
    for bad in [&[][..], &[f32::NAN], &[f32::INFINITY, 0.0], &[0.0, f32::NAN], &[f32::NEG_INFINITY]] {
        assert!(Probabilities::new(bad).is_none(), "{bad:?}");
    }
}

#[test]
fn texts_are_cut_as_stated() {
    let tokens: Vec<u32> = (0..35).collect();
    let plain = Cut { size: 10, stride: 0, bos: Some(99) };
    assert_eq!((plain.count(35), plain.count(9), plain.first(), plain.predicted()), (3, 0, 5, 4));
    assert_eq!(plain.piece(&tokens, 2).tokens, [99, 21, 22, 23, 24, 25, 26, 27, 28, 29]);
    let strided = Cut { size: 10, stride: 4, bos: None };
    assert_eq!((strided.count(35), strided.count(10), strided.first(), strided.predicted()), (7, 0, 5, 4));
    // The predicted positions of neighbours touch: 6..=9 and then 10..=13.
    assert_eq!(strided.piece(&tokens, 6).tokens, (24..34).collect::<Vec<u32>>());
}

fn rows(vocab: usize) -> Vec<Vec<f32>> {
    let mut state = 1u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 20) as f32 - 8.0
    };
    (0..4).map(|_| (0..vocab).map(|_| next()).collect()).collect()
}

#[test]
fn a_base_file_gives_back_the_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    for vocab in [7, 8] {
        let path = folder.path().join(vocab.to_string());
        let header = Header { size: 6, vocab, tokens: vec![1, 2, 3, 4, 5, 6, 0, 2, 3, 4, 5, 6] };
        let rows = rows(vocab);
        let mut writer = Writer::create(&path, &header).unwrap();
        for row in &rows {
            writer.row(&Probabilities::new(row).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!((reader.header(), reader.rows()), (&header, 2));
        for logits in &rows {
            let expected = Probabilities::new(logits).unwrap();
            let row = reader.row().unwrap();
            for (id, log) in (0u32..).zip(row.logs()) {
                assert!((f64::from(log) + expected.cost(id)).abs() < 2e-4 || expected.cost(id) > 15.0);
            }
            let mut same = Divergence::default();
            same.push(&expected, &row, 3);
            let report = same.report().unwrap();
            // Half a step, of 65535 in 16.
            assert!(report.kld.value.abs() < 1.3e-4 && report.same_top.value == 1.0, "{report:?}");
        }
        assert_eq!(reader.row().err().map(|e| e.kind()), Some(ErrorKind::UnexpectedEof));
    }
}

#[test]
fn a_base_file_that_is_none_is_refused_with_what_was_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base");
    let header = Header { size: 6, vocab: 8, tokens: vec![7; 6] };
    let mut writer = Writer::create(&path, &header).unwrap();
    for row in &rows(8)[..2] {
        writer.row(&Probabilities::new(row).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let good = std::fs::read(&path).unwrap();
    Reader::open(&path).unwrap();
    let with = |at: usize, bytes: [u8; 4]| {
        let mut all = good.clone();
        all[at..at + 4].copy_from_slice(&bytes);
        all
    };
    let cases = [
        (vec![], "found 0 bytes"),
        (good[..19].to_vec(), "found 19 bytes"),
        (good[..good.len() - 1].to_vec(), "expected 92"),
        (with(0, *b"GGUF"), "expected \"_logits_\""),
        (with(8, i32::MAX.to_le_bytes()), "expected"),
        (with(8, (-1i32).to_le_bytes()), "a piece of -1"),
        (with(8, 3i32.to_le_bytes()), "a piece of 3"),
        (with(12, 0i32.to_le_bytes()), "a vocabulary of 0"),
        (with(12, i32::MAX.to_le_bytes()), "expected"),
        (with(16, i32::MAX.to_le_bytes()), "expected"),
        (with(20, 8u32.to_le_bytes()), "found token 8"),
    ];
    for (bytes, word) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = Reader::open(&path).expect_err(word).to_string();
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
    std::fs::write(&path, with(44, f32::NAN.to_le_bytes())).unwrap();
    assert!(Reader::open(&path).unwrap().row().is_err());
}

#[test]
fn divergence_of_known_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base");
    let header = Header { size: 6, vocab: 2, tokens: vec![0; 6] };
    let mut writer = Writer::create(&path, &header).unwrap();
    // The base says 3/4 and 1/4, the model the other way round, then the same.
    let (up, down) = ([3f32.ln(), 0.0], [0.0, 3f32.ln()]);
    for row in [up, up] {
        writer.row(&Probabilities::new(&row).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let mut all = Divergence::default();
    assert!(all.report().is_none());
    for model in [down, up] {
        all.push(&Probabilities::new(&model).unwrap(), &reader.row().unwrap(), 0);
    }
    let r = all.report().unwrap();
    let kld = 0.75 * 3f64.ln() - 0.25 * 3f64.ln();
    let near = |a: f64, b: f64| (a - b).abs() < 1e-4;
    assert!(near(r.kld.value, kld / 2.0) && near(r.kld_quantiles.maximum, kld), "{r:?}");
    assert!(near(r.kld_quantiles.median, kld / 2.0) && near(r.kld_quantiles.minimum, 0.0), "{r:?}");
    assert!(near(r.change.value, -0.25) && near(r.change_rms.value, 0.125f64.sqrt()), "{r:?}");
    assert!(near(r.same_top.value, 0.5) && near(r.base_ppl.value, 4.0 / 3.0), "{r:?}");
    assert!(near(r.log_ratio.value, 3f64.ln() / 2.0) && near(r.ratio.value, 3f64.sqrt()), "{r:?}");
}

#[test]
fn quantiles_lie_between_values() {
    let q = Quantiles::of(&[4.0, 1.0, 3.0, 2.0]);
    assert_eq!((q.minimum, q.median, q.maximum, q.p25), (1.0, 2.5, 4.0, 1.75));
    assert_eq!(Quantiles::of(&[]), Quantiles::default());
    assert_eq!(Quantiles::of(&[5.0]).p99, 5.0);
}
