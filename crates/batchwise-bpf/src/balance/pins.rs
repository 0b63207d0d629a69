//! Where a load balancer's maps and attachments are pinned, and taking them all away.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::attach::interface::index_of;
use crate::attach::pins::{detach, mount_bpffs, open};
use crate::error::BPFFS;

/// What attachments' names begin with; the interface's name follows.
const LINK: &str = "link-";
/// For a dot, which bpffs has in no name (the kernel's `bpf_lookup`). No interface has a % in its name
/// (`dev_get_valid_name`).
const DOT: &str = "%2e";
/// A map without which nothing is there to take over.
const PROOF: &str = "services";

/// What tells the network namespace whose interfaces the attachments are of: a symbolic link to its
/// name, as in `/proc/self/ns`. bpffs has no files, and the kernel does not tell it of a link.
const NETWORK: &str = "network";

/// The folder of a name.
pub(super) fn folder(name: &str) -> PathBuf {
    Path::new(BPFFS).join("batchwise/balance").join(name)
}

/// Whether something is pinned under a name.
pub(super) fn exist(name: &str) -> bool {
    check_name(name).is_ok() && folder(name).join(PROOF).exists()
}

/// A name is part of paths.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=32).contains(&name.len()) && name.bytes().all(letter) {
        return Ok(());
    }
    Err(Error::BadName { name: name.into() })
}

/// Makes a name's folder.
pub(super) fn make_folder(name: &str) -> Result<PathBuf, Error> {
    check_name(name)?;
    mount_bpffs()?;
    let folder = folder(name);
    fs::create_dir_all(&folder).map_err(Error::io("making a folder in bpffs"))?;
    Ok(folder)
}

/// The pinned attachments: interface and path.
pub(super) fn links(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let files = fs::read_dir(folder).map_err(Error::io("reading bpffs"))?;
    let link = |file: fs::DirEntry| {
        let name = file.file_name().into_string().ok()?;
        let interface = name.strip_prefix(LINK)?.replace(DOT, ".");
        Some((interface, file.path()))
    };
    Ok(files.flatten().filter_map(link).collect())
}

/// Where an interface's attachment is pinned.
pub(super) fn link(folder: &Path, interface: &str) -> PathBuf {
    folder.join(format!("{LINK}{}", interface.replace('.', DOT)))
}

/// The calling thread's network namespace.
fn own_network() -> Result<PathBuf, Error> {
    let own = fs::read_link("/proc/thread-self/ns/net");
    own.map_err(Error::io("reading our network namespace's name"))
}

/// Another network namespace than ours that a folder's attachments are in.
pub(super) fn foreign(folder: &Path) -> Result<Option<PathBuf>, Error> {
    let Ok(network) = fs::read_link(folder.join(NETWORK)) else {
        return Ok(None); // the last start was killed amid it
    };
    if network == own_network()? {
        return Ok(None);
    }
    // those of a namespace that is gone have no interface
    let attached = |path: &Path| open(path).is_ok_and(|link| index_of(&link).is_some());
    let mut links = links(folder)?.into_iter();
    Ok(links.any(|(_, path)| attached(&path)).then_some(network))
}

/// Notes that a folder's attachments are in our network namespace.
pub(super) fn claim(folder: &Path) -> Result<(), Error> {
    let (path, own) = (folder.join(NETWORK), own_network()?);
    if fs::read_link(&path).is_ok_and(|network| network == own) {
        return Ok(());
    }
    let doing = "noting our network namespace in bpffs";
    if path.is_symlink() {
        fs::remove_file(&path).map_err(Error::io(doing))?;
    }
    symlink(own, path).map_err(Error::io(doing))
}

/// Takes all that a name has away.
pub(super) fn remove(name: &str) -> Result<(), Error> {
    let folder = folder(name);
    if !folder.exists() {
        return Ok(());
    }
    for (_, path) in links(&folder)? {
        detach(&path)?;
    }
    let doing = "removing what is pinned";
    for file in fs::read_dir(&folder).map_err(Error::io(doing))? {
        let file = file.map_err(Error::io(doing))?;
        fs::remove_file(file.path()).map_err(Error::io(doing))?;
    }
    fs::remove_dir(&folder).map_err(Error::io(doing))?;
    // those above go with their last name
    for above in folder.ancestors().skip(1).take(2) {
        if fs::remove_dir(above).is_err() {
            break;
        }
    }
    Ok(())
}
