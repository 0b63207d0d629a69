//! Writes the files of a site for a web server.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::site::{Description, Object, Site};

/// Text is made of these many words of its own, which makes it compress to about a third, like
/// the text of real sites.
const WORDS: usize = 800;

impl Site {
    /// Writes the files of a site to a folder, and the description beside them as `site.toml`.
    /// Files that exist are replaced. Returns how many files the site has, and their bytes.
    pub fn write(description: &Description, folder: &Path) -> Result<(usize, u64)> {
        let site = Self::build(description)?;
        let write = |path: &str, bytes: &[u8]| {
            let path = folder.join(path);
            let written = path.parent().map_or(Ok(()), fs::create_dir_all);
            written
                .and_then(|()| fs::write(&path, bytes))
                .with_context(|| format!("cannot write the site to {}", path.display()))
        };
        let mut rng = ChaCha8Rng::seed_from_u64(description.seed);
        let words: Vec<_> = (0..WORDS).map(|_| word(&mut rng)).collect();
        for object in &site.objects {
            write(&object.path, &contents(object, &words, &mut rng))?;
        }
        write("site.toml", toml::to_string(description)?.as_bytes())?;
        let bytes = site.objects.iter().map(|o| o.size).sum();
        Ok((site.objects.len(), bytes))
    }
}

fn word(rng: &mut impl Rng) -> Vec<u8> {
    let length = rng.random_range(2..11);
    let letters = (0..length).map(|_| rng.random_range(b'a'..=b'z'));
    letters.chain([b' ']).collect()
}

fn contents(object: &Object, words: &[Vec<u8>], rng: &mut impl RngCore) -> Vec<u8> {
    let size = object.size as usize;
    if !object.text {
        let mut bytes = vec![0; size];
        rng.fill_bytes(&mut bytes);
        return bytes;
    }
    let mut bytes = Vec::with_capacity(size + 16);
    while bytes.len() < size {
        // The square makes some words frequent, as they are in text.
        let at = rng.random::<f64>().powi(2) * words.len() as f64;
        bytes.extend_from_slice(&words[at as usize]);
    }
    bytes.truncate(size);
    bytes
}
