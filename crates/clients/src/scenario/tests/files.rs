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
    let step = "[[step]]\npath = \"/\"\n";
    for (text, line, words) in [
        ("", 1, "no steps"),
        ("[[setup]]\npath = \"/\"\n", 1, "no steps"),
        (
            "[[step]]\npath = \"/\"\n[[setup]]\npath = \"/{{who}}\"\n",
            4,
            "setup 1: there is no variable `who`",
        ),
        ("repeat = 0\n[[step]]\npath = \"/\"\n", 1, "repeat 0"),
        ("reapeat = 1\n", 1, "unknown field `reapeat`"),
        ("x = [\n", 1, "unclosed array"),
        ("[[step]]\n", 1, "missing field `path`"),
        ("[[step]]\npath = \"one\"\n", 2, "not a path"),
        ("[[step]]\npath = \"/a b\"\n", 2, "not a path"),
        ("[[step]]\npath = \"/{{who}}\"\n", 2, "no variable `who`"),
        ("[[step]]\npath = \"/{{user\"\n", 2, "has no end"),
        (
            "[[step]]\npath = \"/\"\nmethod = \"FETCH\"\n",
            3,
            "`FETCH` cannot be sent",
        ),
        (
            "[[step]]\npath = \"/\"\nmethod = \"CONNECT\"\n",
            3,
            "cannot be sent",
        ),
        (
            "[[step]]\npath = \"/\"\nbody = \"x\"\nform = { a = \"b\" }\n",
            3,
            "more than one of",
        ),
        (
            "[[step]]\npath = \"/\"\nthink = \"2 minutes\"\n",
            3,
            "not a time",
        ),
        ("[[step]]\npath = \"/\"\nthink = \"25h\"\n", 3, "not a time"),
        (
            "[[step]]\npath = \"/\"\nthink = [\"2s\", \"1s\"]\n",
            3,
            "other way round",
        ),
        ("[[step]]\npath = \"/\"\nthink = 2\n", 3, "expected a time"),
        (
            "[[step]]\npath = \"/\"\nexpect.status = 99\n",
            3,
            "99 is not the status",
        ),
        (
            "[[step]]\npath = \"/\"\nexpect = { statsu = 200 }\n",
            3,
            "unknown field `statsu`",
        ),
        (
            "[[step]]\npath = \"/\"\nheaders = { \"A B\" = \"c\" }\n",
            3,
            "not the name of a header",
        ),
        (
            "[[step]]\npath = \"/\"\nheaders = { Cookie = \"c\" }\n",
            3,
            "set by the client",
        ),
        (
            "[[step]]\npath = \"/\"\nheaders = { A = \"b\\nc\" }\n",
            3,
            "control character",
        ),
        (
            "[[step]]\npath = \"/\"\nbody_file = \"none.bin\"\n",
            3,
            "none.bin",
        ),
        (
            "[[step]]\npath = \"/\"\ncapture.user = { header = \"A\" }\n",
            3,
            "already",
        ),
        (
            "[[step]]\npath = \"/\"\ncapture.a = { heder = \"A\" }\n",
            3,
            "unknown variant `heder`",
        ),
        (
            "[[step]]\npath = \"/\"\ncapture.a = { between = [\"\", \"x\"] }\n",
            3,
            "empty text",
        ),
        (
            "[[step]]\npath = \"/\"\nmethod = \"HEAD\"\nexpect.contains = \"x\"\n",
            2,
            "HEAD",
        ),
        ("[variables]\nuser = \"x\"\n", 2, "already"),
        ("[users]\nfile = \"none.csv\"\n", 2, "none.csv"),
    ] {
        let text = if text.contains("[[step]]") || line == 1 || text.starts_with('x') {
            text.to_owned()
        } else {
            format!("{text}{step}")
        };
        let message = fault(&text);
        assert!(
            message.starts_with(&format!("s.toml:{line}: ")),
            "{message}"
        );
        assert!(
            message.contains(words) && !message.contains('\n'),
            "{message}"
        );
    }
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
            let host = if bodies.len() == 1 {
                "shop:8080"
            } else {
                "www"
            };
            assert_eq!(request.header("host"), host);
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
