//! Small files that are replaced whole or not at all, and that only their owner reads.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// `path` has this text from now on.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    // what is in the way goes: it may be a link that leads elsewhere
    match fs::remove_file(new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(new);
    file?.write_all(text.as_bytes())?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn links_in_the_way_are_replaced_and_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let [elsewhere, path, new] = ["a", "b", "b.new"].map(|name| folder.path().join(name));
        fs::write(&elsewhere, "as it was").expect("a file");
        for link in [&path, &new] {
            symlink(&elsewhere, link).expect("a link");
        }
        replace(&path, "new").expect("written");
        let read = |path| fs::read_to_string(path).expect("text");
        assert_eq!(
            (read(&elsewhere), read(&path)),
            ("as it was".into(), "new".into())
        );
        let mode = fs::symlink_metadata(&path).expect("a file").mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
}
