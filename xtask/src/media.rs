//! The demo site's sound: a server that is loaded until it can carry no more, to be heard.
//!
//! Nothing of it is recorded or committed. [`score`] simulates one server with one queue whose
//! clients grow, [`synth`] turns every request into a note, [`picture`] draws the same run. The
//! same source always gives the same files.

use std::fs;
use std::io;
use std::path::Path;

mod picture;
mod score;
mod synth;

use score::Score;

/// Samples of each channel per second.
const SAMPLE_RATE: u32 = 44_100;
const CHANNELS: u16 = 2;

/// What makes the files what they are: if one of these changes, old files are replaced.
const SOURCES: [&str; 4] = [
    include_str!("media.rs"),
    include_str!("media/picture.rs"),
    include_str!("media/score.rs"),
    include_str!("media/synth.rs"),
];

/// Writes the sound and its picture under `root`/site/media, unless the same ones are there already.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let folder = root.join("site/media");
    write_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let (sound, picture) = (folder.join("saturation.wav"), folder.join("saturation.svg"));
    let recipe = recipe();
    if is_current(&sound, &recipe)? && is_current(&picture, &recipe)? {
        return Ok(());
    }
    let score = Score::simulate();
    write_whole(&picture, picture::draw(&score, &recipe).as_bytes())?;
    // Last, since it is the one that takes time: both are current only if both were written.
    write_whole(&sound, &wav(&synth::render(&score), &recipe))
}

/// A name for the present sources (FNV-1a, since it need only tell versions apart).
fn recipe() -> String {
    let bytes = SOURCES.iter().flat_map(|source| source.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("loadline demo media, recipe {hash:016x}")
}

/// Whether `path` holds what this recipe writes: both files name it close to their beginning.
fn is_current(path: &Path, recipe: &str) -> io::Result<bool> {
    match fs::read(path) {
        Ok(bytes) => {
            let head = &bytes[..bytes.len().min(400)];
            Ok(head
                .windows(recipe.len())
                .any(|part| part == recipe.as_bytes()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces `path` in one step, so that a server never shows half of it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("part");
    fs::write(&unfinished, bytes)?;
    fs::rename(&unfinished, path)
}

/// 16-bit samples of interleaved channels as a WAV file.
fn wav(samples: &[i16], recipe: &str) -> Vec<u8> {
    let data: Vec<u8> = samples
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    let frame_bytes = CHANNELS * 2;
    let mut format = Vec::new();
    format.extend(1_u16.to_le_bytes()); // PCM
    format.extend(CHANNELS.to_le_bytes());
    format.extend(SAMPLE_RATE.to_le_bytes());
    format.extend((SAMPLE_RATE * u32::from(frame_bytes)).to_le_bytes());
    format.extend(frame_bytes.to_le_bytes());
    format.extend(16_u16.to_le_bytes());

    let mut list = b"INFO".to_vec();
    append_chunk(&mut list, b"INAM", b"Saturation\0");
    append_chunk(&mut list, b"ICMT", format!("{recipe}\0").as_bytes());

    let mut form = b"WAVE".to_vec();
    append_chunk(&mut form, b"fmt ", &format);
    append_chunk(&mut form, b"LIST", &list);
    append_chunk(&mut form, b"data", &data);
    let mut file = Vec::with_capacity(form.len() + 8);
    append_chunk(&mut file, b"RIFF", &form);
    file
}

/// A RIFF chunk: name, length, content, padding to an even length.
fn append_chunk(out: &mut Vec<u8>, name: &[u8; 4], content: &[u8]) {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX); // minutes, not hours
    out.extend(name);
    out.extend(length.to_le_bytes());
    out.extend(content);
    if content.len() % 2 == 1 {
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_padded_to_even_length() {
        let mut out = Vec::new();
        append_chunk(&mut out, b"test", b"abc");
        assert_eq!(out, b"test\x03\0\0\0abc\0");
    }

    #[test]
    fn a_wav_file_says_what_it_is() {
        let file = wav(&[1, -1, 2, -2], "a recipe");
        assert_eq!(&file[..4], b"RIFF");
        assert_eq!(
            u32::from_le_bytes(file[4..8].try_into().unwrap()) as usize,
            file.len() - 8
        );
        assert_eq!(&file[8..16], b"WAVEfmt ");
        assert_eq!(&file[file.len() - 16..file.len() - 12], b"data");
        assert_eq!(&file[file.len() - 8..], [1, 0, 255, 255, 2, 0, 254, 255]);
    }

    #[test]
    fn a_second_run_leaves_the_files_alone_and_a_damaged_one_is_replaced() {
        let folder = std::env::temp_dir().join(format!("xtask-media-{}", std::process::id()));
        write_all(&folder).unwrap();
        let sound = folder.join("saturation.wav");
        let (first, bytes) = (fs::metadata(&sound).unwrap(), fs::read(&sound).unwrap());
        write_all(&folder).unwrap();
        let second = fs::metadata(&sound).unwrap();
        assert_eq!(first.modified().unwrap(), second.modified().unwrap());
        fs::write(&sound, b"RIFF of something else").unwrap();
        write_all(&folder).unwrap();
        assert!(
            bytes == fs::read(&sound).unwrap(),
            "the same source gives the same bytes"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
