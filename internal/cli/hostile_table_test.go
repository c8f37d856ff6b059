package cli_test

import "strings"

// trap is one way to make git run a program, or go where it should not. In its
// texts {run} stands for a shell command that leaves the trap's mark, {prog} for
// a program that does, {self} for the file that the trap makes of itself when
// git writes a trace, {home} for the person's directories, and {dir} for the
// repository.
type trap struct {
	name  string
	world string // traps of one world are set together; "" is the world in which all goes on as if there were none

	config     string            // text of the repository's configuration
	attributes string            // of the tree
	files      map[string]string // below the repository; one that begins with "#!" is a program
	env        []string          // of the person

	prove string // shell line by which the person's own git falls into it
	why   string // why there is no such line
}

const (
	notHere = "it needs a terminal, a server or a tool that is not here; it is set all the same"
	notRepo = "git takes it from a person's configuration only; it is set all the same"
	notCurr = "git has no such thing in the oldest version that is used; it is set all the same"
)

// hookProofs are the hooks that git knows, each with a line that runs it.
var hookProofs = map[string]string{
	"applypatch-msg":     "git format-patch -q -1 --stdout >../p; git reset -q --hard HEAD~1; git am -q ../p",
	"pre-applypatch":     "git format-patch -q -1 --stdout >../p; git reset -q --hard HEAD~1; git am -q ../p",
	"post-applypatch":    "git format-patch -q -1 --stdout >../p; git reset -q --hard HEAD~1; git am -q ../p",
	"pre-commit":         "git commit -q --allow-empty -m x",
	"prepare-commit-msg": "git commit -q --allow-empty -m x", "commit-msg": "git commit -q --allow-empty -m x", "post-commit": "git commit -q --allow-empty -m x",
	"pre-merge-commit":      "git switch -q -c o; git commit -q --allow-empty -m o; git switch -q main; git merge -q --no-ff -m m o",
	"post-merge":            "git switch -q -c o; git commit -q --allow-empty -m o; git switch -q main; git merge -q --no-ff -m m o",
	"pre-rebase":            "git rebase -q --force HEAD~1",
	"post-rewrite":          "git commit -q --amend -m z",
	"post-checkout":         "git switch -q -c o",
	"post-index-change":     "echo x >>a.txt; git add a.txt",
	"reference-transaction": "git update-ref refs/heads/o HEAD",
	"pre-push":              "git init -q --bare ../b.git; git push -q ../b.git main",
	"pre-receive":           "git push -q . HEAD:refs/heads/o", "update": "git push -q . HEAD:refs/heads/o", "post-receive": "git push -q . HEAD:refs/heads/o", "post-update": "git push -q . HEAD:refs/heads/o",
	"push-to-checkout":   "git config receive.denyCurrentBranch updateInstead; git push -q . HEAD~1:refs/heads/o; git commit -q --allow-empty -m x; git clone -q . ../c; git -C ../c commit -q --allow-empty -m c; git -C ../c push -q origin HEAD:main",
	"proc-receive":       "git config receive.procReceiveRefs refs/for; git push -q . HEAD:refs/for/x",
	"fsmonitor-watchman": "git config core.fsmonitor .git/hooks/fsmonitor-watchman; git status",
	"pre-auto-gc":        "git config gc.autoDetach false; git config gc.autoPackLimit 1; git repack -q; git commit -q --allow-empty -m x; git repack -q; git gc -q --auto",
	"sendemail-validate": "", "p4-changelist": "", "p4-prepare-changelist": "", "p4-post-changelist": "", "p4-pre-submit": "",
}

func hookTraps() []trap {
	var all []trap
	for name, prove := range hookProofs {
		t := trap{name: "hook-" + name, files: map[string]string{".git/hooks/" + name: "#!/bin/sh\n{run} 2>/dev/null\nexit 0\n"}, prove: prove}
		if prove == "" {
			t.why = notHere
		}
		all = append(all, t)
	}
	return all
}

// configTraps are set in the repository's configuration.
var configTraps = []trap{
	{name: "fsmonitor", config: "[core]\nfsmonitor = {prog}\nuntrackedCache = true", prove: "git status"},
	{name: "ssh", config: "[core]\nsshCommand = \"{run}; false\"\n[remote \"s\"]\nurl = ssh://nowhere.invalid/x", prove: "git fetch s"},
	{name: "git-proxy", config: "[core]\ngitProxy = {prog}\n[remote \"g\"]\nurl = git://nowhere.invalid/x", prove: "git fetch g"},
	{name: "pager", config: "[core]\npager = \"{run}; cat\"", why: notHere},
	{name: "pager-command", config: "[pager]\nlog = \"{run}; cat\"\ndiff = \"{run}; cat\"\nconfig = \"{run}; cat\"", why: notHere},
	{name: "editor", config: "[core]\neditor = \"{run}; false\"", prove: "git commit --allow-empty"},
	{name: "sequence-editor", config: "[sequence]\neditor = \"{run}; false\"", prove: "git rebase -i HEAD~1"},
	{name: "askpass", config: "[core]\naskPass = {prog}", prove: "printf 'protocol=https\\nhost=x.invalid\\n\\n' | git credential fill"},
	{name: "credential-helper", config: "[credential]\nhelper = \"!{run};:\"", prove: "printf 'protocol=https\\nhost=x.invalid\\n\\n' | git credential fill"},
	{name: "gpg-program", config: "[gpg]\nprogram = {prog}\n[commit]\ngpgSign = true\n[tag]\ngpgSign = true\n[log]\nshowSignature = true\n[user]\nsigningKey = x", prove: "git commit -q --allow-empty -m x"},
	{name: "filter-clean", config: "[filter \"evil\"]\nclean = \"{run}; cat\"", attributes: "*.txt filter=evil", prove: "echo x >>a.txt; git add a.txt"},
	{name: "filter-smudge", config: "[filter \"evil\"]\nsmudge = \"{run}; cat\"", attributes: "*.txt filter=evil", prove: "rm a.txt; git checkout a.txt"},
	{name: "filter-process", config: "[filter \"proc\"]\nprocess = {prog}", attributes: "*.bin filter=proc", prove: "echo x >>c.bin; git add c.bin"},
	{name: "filter-lfs", config: "[filter \"lfs\"]\nclean = \"{run}; cat\"\nsmudge = \"{run}; cat\"\n[lfs \"customtransfer.x\"]\npath = {prog}", files: map[string]string{".git/info/attributes": "*.sec filter=lfs\n"}, prove: "echo x >>d.sec; git add d.sec"},
	{name: "attributes-file", config: "[core]\nattributesFile = {dir}/agent/attributes\n[filter \"atf\"]\nclean = \"{run}; cat\"", prove: "echo x >>e.atf; git add e.atf"},
	{name: "textconv", config: "[diff \"conv\"]\ntextconv = {prog}\ncachetextconv = true", attributes: "*.txt diff=conv", prove: "echo x >>a.txt; git diff"},
	{name: "diff-command", config: "[diff \"evil\"]\ncommand = {prog}", attributes: "*.bin diff=evil", prove: "echo x >>c.bin; git diff"},
	{name: "diff-external", config: "[diff]\nexternal = {prog}", prove: "echo x >>a.txt; git diff"},
	{name: "merge-driver", config: "[merge \"evil\"]\ndriver = \"{run}; true\"\nname = evil\n[merge]\nrenormalize = true\ndefault = evil", attributes: "*.txt merge=evil", prove: "git switch -q -c o HEAD~1; echo o >>a.txt; git commit -qam o; git merge -q -m m main"},
	{name: "trailer-command", config: "[trailer \"x\"]\nkey = X\ncommand = \"{run}\"", prove: "echo a | git interpret-trailers --trailer x=1"},
	{name: "trailer-cmd", config: "[trailer \"y\"]\nkey = Y\ncmd = \"{run};:\"", prove: "echo a | git interpret-trailers --trailer y=1"},
	{name: "diff-filter", config: "[interactive]\ndiffFilter = \"{run}; cat\"", prove: "echo x >>a.txt; echo q | GIT_PAGER_IN_USE=1 TERM=xterm git -c color.ui=always -c color.interactive=always -c color.diff=always add -p"},
	{name: "difftool", config: "[difftool \"x\"]\ncmd = \"{run}\"\n[diff]\ntool = x", prove: "echo x >>a.txt; git difftool -y"},
	{name: "mergetool", config: "[mergetool \"x\"]\ncmd = \"{run}\"\n[merge]\ntool = x", prove: "git switch -q -c o HEAD~1; echo z >a.txt; git commit -qam o; git merge -q main; git mergetool -y"},
	{name: "browser", config: "[browser \"x\"]\ncmd = \"{run};:\"\n[web]\nbrowser = x", prove: "git web--browse a.txt"},
	{name: "man", config: "[man \"x\"]\ncmd = \"{run};:\"\n[man]\nviewer = x", prove: "git help -m log"},
	{name: "archive", config: "[tar \"x\"]\ncommand = \"{run}; cat\"", prove: "git archive --format=x HEAD >/dev/null"},
	{name: "alias", config: "[alias]\nst = \"!{run}\"", prove: "git st"},
	{name: "alias-of-built-in", config: "[alias]\nrev-parse = \"!{run}\"\nconfig = \"!{run}\"\nupdate-ref = \"!{run}\"\nread-tree = \"!{run}\"\ndiff = \"!{run}\"\nlog = \"!{run}\"\nmerge-tree = \"!{run}\"\nunpack-objects = \"!{run}\"\nversion = \"!{run}\"", why: "a git that is older than any looked for aliases first; it is set all the same"},
	{name: "remote-ext", config: "[protocol]\nallow = always\n[protocol \"ext\"]\nallow = always\n[remote \"e\"]\nurl = ext::{prog}", prove: "git fetch e"},
	{name: "remote-uploadpack", config: "[protocol \"file\"]\nallow = always\n[remote \"f\"]\nurl = file://{dir}\nuploadpack = {prog}", prove: "git fetch f"},
	{name: "remote-receivepack", config: "[remote \"r\"]\nurl = file://{dir}\nreceivepack = {prog}", prove: "git push r main"},
	{name: "remote-vcs", config: "[protocol \"evil\"]\nallow = always\n[remote \"v\"]\nvcs = evil\nurl = x", files: map[string]string{"git-remote-evil": "#!/bin/sh\n{run}\n"}, prove: "PATH=.:$PATH git fetch v"},
	{name: "submodule-update", config: "[submodule]\nrecurse = true\n[submodule \"x\"]\nupdate = \"!{run}\"\nurl = ./x\nactive = true", prove: "git clone -q . ../x; git -c protocol.file.allow=always submodule -q add --force ../x x; git submodule update --force"},
	{name: "pack-objects-hook", config: "[uploadpack]\npackObjectsHook = {prog}", why: notRepo},
	{name: "alternate-refs", config: "[core]\nalternateRefsCommand = \"{run};:\"", prove: "git clone -q --bare . ../alt.git; git clone -q --bare . ../src.git; echo {dir}/../alt.git/objects >.git/objects/info/alternates; git push -q . HEAD:refs/heads/o"},
	{name: "trace2", config: "[trace2]\neventTarget = {self}\nnormalTarget = {self}", why: notRepo},
	{name: "recent-objects", config: "[gc]\nrecentObjectsHook = {prog}\nauto = 1\npruneExpire = now\n[maintenance]\nauto = true\nstrategy = incremental", why: notCurr},
	{name: "bundle-uri", config: "[transfer]\nbundleURI = true\n[fetch]\nbundleURI = ext::{prog}\n[clone]\nbundleURI = ext::{prog}", why: notCurr},
	{name: "template", config: "[init]\ntemplateDir = {dir}/agent", why: notRepo},
	{name: "safe-directory", config: "[safe]\ndirectory = *\nbareRepository = all", why: notRepo},
	{name: "url-rewrite", config: "[url \"ext::{prog} \"]\ninsteadOf = https://\npushInsteadOf = https://\n[protocol \"ext\"]\nallow = always", prove: "git fetch https://x.invalid/y"},

	{name: "include", config: "[include]\npath = included", files: map[string]string{".git/included": "[core]\nfsmonitor = {prog}\n[include]\npath = ../agent/config\n"}, prove: "git status"},
	{name: "include-if", config: "[includeIf \"gitdir:/\"]\npath = {dir}/.git/included-if\n[includeIf \"onbranch:**\"]\npath = {dir}/.git/included-if", files: map[string]string{".git/included-if": "[diff]\nexternal = {prog}\n"}, prove: "echo x >>a.txt; git diff"},

	{name: "hooks-path", world: "hooks path", config: "[core]\nhooksPath = {dir}/agent/hooks", files: map[string]string{"agent/hooks/reference-transaction": "#!/bin/sh\n{run} 2>/dev/null\nexit 0\n"}, prove: "git update-ref refs/heads/o HEAD"},
	{name: "hooks-path-relative", world: "hooks path in the tree", config: "[core]\nhooksPath = agent/hooks", files: map[string]string{"agent/hooks/post-index-change": "#!/bin/sh\n{run} 2>/dev/null\nexit 0\n"}, prove: "echo x >>a.txt; git add a.txt"},
	{name: "filter-required", world: "a filter that has to run", config: "[filter \"evil\"]\nclean = \"{run} && cat\"\nsmudge = \"{run} && cat\"\nrequired", attributes: "*.txt filter=evil", prove: "echo x >>a.txt; git add a.txt"},
	{name: "gpg-ssh", world: "signatures by ssh", config: "[gpg]\nformat = ssh\n[gpg \"ssh\"]\nprogram = {prog}\ndefaultKeyCommand = {prog}\n[commit]\ngpgSign = true", prove: "git commit -q --allow-empty -m x"},
	{name: "worktree-config", world: "configuration of a worktree", config: "[core]\nrepositoryFormatVersion = 1\n[extensions]\nworktreeConfig = true", files: map[string]string{".git/config.worktree": "[core]\nfsmonitor = {prog}\n[diff]\nexternal = {prog}\n"}, prove: "git status"},
	{name: "promisor", world: "objects that are fetched when they are wanted", config: "[core]\nrepositoryFormatVersion = 1\n[extensions]\npartialClone = p\n[protocol \"file\"]\nallow = always\n[remote \"p\"]\nurl = file://{dir}\npromisor = true\nuploadpack = {prog}", prove: "git cat-file -p 1111111111111111111111111111111111111111"},
	{name: "core-worktree", world: "a tree that is elsewhere", config: "[core]\nworktree = {home}/bystander\nfsmonitor = {prog}", prove: "git status"},
	{name: "alternates", world: "objects that are elsewhere", config: "[core]\nfsmonitor = {prog}", files: map[string]string{".git/objects/info/alternates": "{home}/bystander\n/etc\n"}, prove: "git status"},
	{name: "log-link", world: "logs that are links", config: "[user]\nname = $({prog})", files: map[string]string{".git/logs/refs/heads/main": "->{home}/home/.bashrc"}, why: "what it would change is looked at"},
}

// environmentTraps are in the environment of the person.
var environmentTraps = []trap{
	{name: "env-external-diff", env: []string{"GIT_EXTERNAL_DIFF={prog}"}, prove: "echo x >>a.txt; git diff"},
	{name: "env-ssh-command", env: []string{"GIT_SSH_COMMAND={prog}"}, prove: "git fetch ssh://x.invalid/y"},
	{name: "env-ssh", env: []string{"GIT_SSH={prog}"}, prove: "git fetch ssh://x.invalid/y"},
	{name: "env-proxy", env: []string{"GIT_PROXY_COMMAND={prog}"}, prove: "git fetch git://x.invalid/y"},
	{name: "env-askpass", env: []string{"GIT_ASKPASS={prog}"}, prove: "printf 'protocol=https\\nhost=x.invalid\\n\\n' | git credential fill"},
	{name: "env-editor", env: []string{"GIT_EDITOR={prog}", "GIT_SEQUENCE_EDITOR={prog}"}, prove: "git commit --allow-empty"},
	{name: "env-config", env: []string{"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0={prog}", "GIT_CONFIG_KEY_1=diff.external", "GIT_CONFIG_VALUE_1={prog}"}, prove: "git status"},
	{name: "env-config-parameters", env: []string{"GIT_CONFIG_PARAMETERS='core.fsmonitor={prog}'"}, prove: "git status"},
	{name: "env-exec-path", env: []string{"GIT_EXEC_PATH={dir}/exec"}, files: map[string]string{"exec/git-evil": "#!/bin/sh\n{run}\n", "exec/git-remote-https": "#!/bin/sh\n{run}\n"}, prove: "git evil"},
	{name: "env-trace2", env: []string{"GIT_TRACE2={self}", "GIT_TRACE2_EVENT={self}", "GIT_TRACE2_PERF={self}"}, prove: "git status"},
	{name: "env-trace", env: []string{"GIT_TRACE={self}", "GIT_TRACE_SETUP={self}", "GIT_TRACE_PACKET={self}"}, prove: "git status"},
	{name: "env-pager", env: []string{"GIT_PAGER={prog}"}, why: notHere},
	{name: "env-template", env: []string{"GIT_TEMPLATE_DIR={dir}/template"}, files: map[string]string{"template/hooks/post-checkout": "#!/bin/sh\n{run}\n"}, prove: "git clone -q . ../c"},
	{name: "env-places", env: []string{"GIT_DIR={home}/bystander/.git", "GIT_WORK_TREE={home}/bystander", "GIT_INDEX_FILE={home}/bystander/index", "GIT_OBJECT_DIRECTORY={home}/bystander/objects", "GIT_COMMON_DIR={home}/bystander/.git", "GIT_NAMESPACE=x"}, why: "what it would change is looked at"},
	{name: "path-git", env: []string{"PATH=.:agent/bin::{path}"}, files: map[string]string{"git": "#!/bin/sh\n{run}\n"}, prove: "git status"},
	{name: "path-others", env: []string{"PATH=.:agent/bin::{path}"}, files: map[string]string{"sh": "#!/bin/sh\n{run}\n", "touch": "#!/bin/sh\n{run}\n", "gpg": "#!/bin/sh\n{run}\n", "ssh": "#!/bin/sh\n{run}\n", "bwrap": "#!/bin/sh\n{run}\n", "docker": "#!/bin/sh\n{run}\n", "podman": "#!/bin/sh\n{run}\n", "git-upload-pack": "#!/bin/sh\n{run}\n", "newuidmap": "#!/bin/sh\n{run}\n"}, prove: "bwrap"},
}

func allTraps() []trap {
	return append(append(hookTraps(), configTraps...), environmentTraps...)
}

// fill puts the places of a trap in a text of it.
func (t trap) fill(text string, p *hostileWorld) string {
	return strings.NewReplacer(
		"{run}", "/usr/bin/touch '"+p.mark(t)+"'", "{prog}", p.program(t), "{self}", p.mark(t),
		"{home}", p.home, "{dir}", p.repo, "{path}", p.path,
	).Replace(text)
}

// known is a command of Caisson and the arguments that it is tried with. REF
// stands for the run, which its workspace is called too; BOX for its sandbox.
type known struct {
	command string
	args    [][]string
}

// knownCommands are tried in this order. A command of the group "workspace" that
// is not here fails the test.
var knownCommands = []known{
	{"version", [][]string{{}}},
	{"doctor", [][]string{{}}},
	{"config show", [][]string{{}}},
	{"policy check", [][]string{{}, {"git", "push"}}},
	{"runs ls", [][]string{{}}},
	{"runs show", [][]string{{"REF"}}},
	{"task new", [][]string{{"Look around", "--type", "chore", "--branch", "chore/hostile", "--base", "main"}}},
	{"task run", [][]string{{"chore/hostile", "--step", "--model", "script:/dev/null"}}},
	{"task next", [][]string{{"chore/hostile"}}},
	{"sandbox ls", [][]string{{"--all"}}},
	{"sandbox exec", [][]string{{"REF", "--", "git", "status"}, {"--no-workspace", "--", "true"}}},
	{"sandbox rm", [][]string{{"--unbound", "--dry-run"}, {"--unbound", "--purge", "--yes"}}},
	{"sandbox prune", [][]string{{"--dry-run"}, {}}},
	{"workspace ls", [][]string{{}, {"--all"}}},
	{"workspace diff", [][]string{{"REF"}, {"REF", "--stat"}, {"REF", "main..agent"}}},
	{"runs diff", [][]string{{"REF"}, {"REF@1..2"}}},
	{"workspace log", [][]string{{"REF"}}},
	{"workspace snapshot", [][]string{{"REF"}}},
	{"workspace merge", [][]string{
		{"REF", "--into", "m1", "--commit", "-m", "all"}, {"REF", "--into", "m2", "--mode", "squash"}, {"REF", "--into", "m3", "--mode", "rebase"}, {"REF", "--into", "main"},
	}},
	{"workspace rebase", [][]string{{"REF", "--onto", "m2"}, {"REF"}}},
	{"workspace export", [][]string{{"REF", "--stdout"}, {"REF", "--output", "../exported"}, {"REF"}}},
	{"workspace rm", [][]string{{"REF", "--dry-run"}, {"REF"}, {"REF", "--yes"}}},
	{"workspace trash ls", [][]string{{}}},
	{"workspace trash restore", [][]string{{"REF"}}},
	{"workspace trash prune", [][]string{{}, {"--all"}}},
	{"workspace restore", [][]string{{"REF", "--turn", "1"}, {"REF", "--turn", "1", "a.txt"}, {"REF"}}},
	{"audit verify", [][]string{{}}},
}
