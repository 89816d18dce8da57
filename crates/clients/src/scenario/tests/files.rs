//! Scenario files: what they may name, and mistakes reported in one line.

use super::*;

fn fault(text: &str) -> String {
    match Scenario::parse(text, "s.toml", Path::new("/nowhere")) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("taken: {text}"),
    }
}

#[test]
fn mistakes_name_their_line() {
    // A file that begins with a step whose third line this is; the line, and the words.
    let of_steps = r#"
        method = "FETCH" => `FETCH` cannot be sent
        method = "CONNECT" => cannot be sent
        think = "2 minutes" => not a time
        think = "25h" => not a time
        think = ["2s", "1s"] => other way round
        think = 2 => expected a time
        expect.status = 99 => 99 is not the status
        expect = { statsu = 200 } => unknown field `statsu`
        headers = { "A B" = "c" } => not the name of a header
        headers = { Cookie = "c" } => set by the client
        headers = { A = "b\nc" } => control character
        body_file = "none.bin" => none.bin
        body = "x"; form = { a = "b" } => more than one of
        capture.user = { header = "A" } => already
        capture.a = { heder = "A" } => unknown variant `heder`
        capture.a = { between = ["", "x"] } => empty text"#;
    let step = "[[step]]\npath = \"/\"\n";
    for row in of_steps.lines().skip(1) {
        let (lines, words) = row.trim().split_once(" => ").unwrap();
        let text = format!("{step}{}\n", lines.replace("; ", "\n"));
        check(&text, 3, words);
    }
    for (text, line, words) in [
        ("", 1, "no steps"),
        ("[[setup]]\npath = \"/\"\n", 1, "no steps"),
        ("reapeat = 1\n", 1, "unknown field `reapeat`"),
        ("x = [\n", 1, "unclosed array"),
        ("[[step]]\n", 1, "missing field `path`"),
        ("[[step]]\npath = \"one\"\n", 2, "not a path"),
        ("[[step]]\npath = \"/a b\"\n", 2, "not a path"),
        ("[[step]]\npath = \"/{{who}}\"\n", 2, "no variable `who`"),
        ("[[step]]\npath = \"/{{user\"\n", 2, "has no end"),
    ] {
        check(text, line, words);
    }
    check(&format!("repeat = 0\n{step}"), 1, "repeat 0");
    check(&format!("[variables]\nuser = \"x\"\n{step}"), 2, "already");
    check(
        &format!("[users]\nfile = \"none.csv\"\n{step}"),
        2,
        "none.csv",
    );
    let setup = "[[setup]]\npath = \"/{{who}}\"\n";
    let words = "setup 1: there is no variable `who`";
    check(&format!("{step}{setup}"), 4, words);
    let head = "method = \"HEAD\"\nexpect.contains = \"x\"\n";
    check(&format!("{step}{head}"), 2, "HEAD");
}

fn check(text: &str, line: usize, words: &str) {
    let message = fault(text);
    let place = format!("s.toml:{line}: ");
    assert!(message.starts_with(&place), "{text}: {message}");
    assert!(
        message.contains(words) && !message.contains('\n'),
        "{message}"
    );
}

#[test]
fn a_step_may_use_only_what_came_before() {
    let text = "[[step]]\nname = \"a\"\npath = \"/{{id}}\"\n\
                [[step]]\npath = \"/\"\ncapture.id = { header = \"A\" }\n";
    assert!(fault(text).starts_with("s.toml:3: a: there is no variable `id` at this point"));
    let text = text.replace("/{{id}}", "/");
    let text = format!("{text}[[step]]\npath = \"/{{{{id}}}}\"\n");
    assert!(Scenario::parse(&text, "s.toml", Path::new("")).is_ok());
}

#[test]
fn users_and_bodies_come_from_files_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("users.csv", "login,secret\nann,\"a,1\"\nbob,b2\n");
    write("body.bin", "{{not a variable}}");
    write(
        "shop.toml",
        "[users]\nfile = \"users.csv\"\n[[step]]\npath = \"/{{login}}\"\nbody_file = \"body.bin\"\n\
         [[step]]\npath = \"/\"\nform = { a = [\"{{secret}}\", \"2\"] }\nheaders = { Host = \"www\" }\n",
    );
    let scenario = Scenario::read(&folder.path().join("shop.toml")).unwrap();
    assert_eq!(scenario.users(), Some(2));
    for (number, login, secret) in [(0, "ann", "a%2C1"), (1, "bob", "b2"), (2, "ann", "a%2C1")] {
        let mut play = Play::new(&scenario, number, 1);
        let mut bodies = Vec::new();
        play.run(5, |request| {
            bodies.push(request.body.clone());
            let hosts = ["shop:8080", "www"];
            assert_eq!(request.header("host"), hosts[bodies.len() - 1]);
            ok("")
        });
        assert_eq!(play.lines[0], format!("POST /{login}"));
        assert_eq!(bodies[0], "{{not a variable}}");
        assert_eq!(bodies[1], format!("a={secret}&a=2"));
    }
    let missing = Scenario::read(&folder.path().join("none.toml"));
    let missing = missing.unwrap_err().to_string();
    assert!(missing.contains("none.toml: No such file"), "{missing}");
}

#[test]
fn the_documented_mistake_has_the_documented_message() {
    let page = include_str!("../../../../../docs/scenarios.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, rest) = rest.split_once("```").unwrap();
    let (_, rest) = rest.split_once("in one line:\n\n    ").unwrap();
    let (documented, _) = rest.split_once('\n').unwrap();
    let wrong = example.replacen("{{csrf}}", "{{crsf}}", 1);
    let message = Scenario::parse(&wrong, "shop.toml", Path::new("")).unwrap_err();
    assert_eq!(message.to_string(), documented);
}
