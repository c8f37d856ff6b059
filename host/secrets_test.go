package host

import (
	"testing"

	"github.com/caisson-run/caisson/config"
)

func TestRedact(t *testing.T) {
	c := config.Config{Credentials: []config.Credential{{Env: "DEPLOY"}}}
	hide := redactEnv([]string{
		"A_KEY=abcdefgh", "GH_TOKEN=abcdefgh-rest", "PGPASSWORD=open-sesame", "TOKEN=plain-token", "github_pat=ghp_0123456", "MYSQL_PWD=mysql-word",
		"DEPLOY=deploy-word", "SHORT_KEY=short", "PWD=/home/person", "MONKEYS=chimpanzee", "SSH_AUTH_SOCK=/run/agent.sock", "MONKEY=gorillas-x",
	}, c)
	for text, want := range map[string]string{
		"<abcdefgh-rest>": "<[GH_TOKEN]>", "<abcdefgh>": "<[A_KEY]>", "open-sesame": "[PGPASSWORD]", "plain-token": "[TOKEN]", "ghp_0123456": "[github_pat]",
		"mysql-word": "[MYSQL_PWD]", "deploy-word": "[DEPLOY]", "short": "short", "/home/person": "/home/person", "chimpanzee": "chimpanzee",
		"/run/agent.sock": "/run/agent.sock", "gorillas-x": "gorillas-x",
	} {
		if got := hide(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if redactEnv([]string{"HOME=/home/person"}, config.Config{}) != nil {
		t.Error("there is something to take out where there is no secret")
	}
}
