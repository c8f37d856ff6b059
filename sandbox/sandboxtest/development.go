package sandboxtest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// projects are files of projects without outside dependencies.
var projects = map[string]string{
	"go/go.mod":      "module example.org/m\n\ngo 1.20\n",
	"go/m.go":        "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n",
	"go/m_test.go":   "package main\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.TempDir() }\n",
	"c/m.c":          "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
	"c/Makefile":     "test: m\n\t./m\nm: m.c\n\t$(CC) -o $@ $<\n",
	"py/test_m.py":   "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1 + 1, 2)\n",
	"js/m.test.js":   "require('node:test')('adds', () => require('node:assert').equal(1 + 1, 2))\n",
	"java/M.java":    "public class M { public static void main(String[] a) { System.out.println(\"hello\"); } }\n",
	"rust/src/m.rs":  "pub fn add(a: u8, b: u8) -> u8 { a + b }\n#[test]\nfn adds() { assert_eq!(add(1, 1), 2); }\nfn main() { println!(\"hello\"); }\n",
	"rs/Cargo.toml":  "[package]\nname = \"m\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
	"rs/src/main.rs": "fn main() { println!(\"hello\"); }\n#[test]\nfn adds() { assert_eq!(1 + 1, 2); }\n",
}

// postgres starts a server on the loopback of the sandbox and asks it.
const postgres = `set -e
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
$bin/initdb -D pg -A trust -U t >/dev/null
$bin/pg_ctl -D pg -o "-p 5432 -k /tmp -h 127.0.0.1" -l pg.log -w start >/dev/null
$bin/psql -h 127.0.0.1 -U t -Atc 'create table x (n int); insert into x values (42); select n from x' postgres | tail -n 1
$bin/pg_ctl -D pg -m immediate -w stop >/dev/null`

const redis = `redis-server --port 6379 --save "" >/dev/null &
until redis-cli -p 6379 ping >/dev/null 2>&1; do :; done
redis-cli -p 6379 set k 42 >/dev/null && redis-cli -p 6379 get k`

// Ordinary work with a cold home.
func developmentWorks(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) {
		for name, text := range projects {
			path := filepath.Join(s.Workspace, name)
			makeDir(t, filepath.Dir(path))
			write(t, path, text, 0o644)
		}
	})
	whole := []struct{ program, line, want string }{ // what needs terminals, loopback, shared memory or an account
		{"python3", `python3 -c 'import multiprocessing as m; m.Lock(); print("hello")'`, "hello"},
		{"pg_ctlcluster", postgres, "42"},
		{"redis-server", redis, "42"},
		{"id", `id -un >/dev/null && ls /dev/pts >/dev/null && echo hello`, "hello"},
	}
	if h.SharedNetwork || h.SharedPaths {
		whole = nil
	}
	for _, c := range append(whole, []struct{ program, line, want string }{
		{"python3", `python3 -c 'import tempfile, subprocess; tempfile.TemporaryFile(); print(subprocess.check_output(["echo", "hello"], text=True).strip())'`, "hello"},
		{"python3", `cd py && python3 -m unittest -q 2>&1 | grep -o OK`, "OK"},
		{"python3", `python3 -m venv --without-pip venv && venv/bin/python -c 'print("hello")'`, "hello"},
		{"node", `node -e 'require("child_process").execSync("true"); console.log("hello")'`, "hello"},
		{"node", `cd js && node --test >/dev/null && echo passed`, "passed"},
		{"gcc", `cd c && gcc -o m m.c && ./m`, "hello"},
		{"make", `cd c && make -s CC=gcc test`, "hello"},
		{"javac", `cd java && javac M.java && java M`, "hello"},
		{"rustc", `cd rust && rustc -o m src/m.rs 2>/dev/null && ./m && rustc --test -o t src/m.rs 2>/dev/null && ./t -q >/dev/null`, "hello"},
		{"cargo", `cd rs && cargo run -q --offline && cargo test -q --offline >/dev/null`, "hello"},
		{"git", `git init -q r && cd r && ` + identity + `echo x > x && git add x && git commit -qm x && git log --format=%s`, "x"},
		{"sqlite3", `sqlite3 db 'create table x (n); insert into x values (42); select n from x'`, "42"},
		{"cat", `cat /proc/self/timerslack_ns`, "50000"}, // the guest's own timers may be late by more
		{"sed", `test -w "$HOME" && test -c /dev/null && echo hello | sed s/x/y/`, "hello"},
	}...) {
		t.Run(c.program, func(t *testing.T) {
			o := o.in(t)
			o.need(c.program)
			if got := o.sh(c.line); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("go", func(t *testing.T) {
		o := o.in(t)
		o.need("go")
		if testing.Short() {
			t.Skip("builds the standard library: not with -short")
		}
		o.patience = 15 * time.Minute // all that it uses of the standard library is built
		if got := o.sh("cd go; export GOFLAGS=-mod=mod CGO_ENABLED=0; go build -o m . && ./m && go test -vet=off . >/dev/null"); got != "hello" {
			t.Errorf("got %q", got)
		}
	})
}
