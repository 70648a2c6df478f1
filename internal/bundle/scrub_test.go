package bundle

import (
	"strings"
	"testing"
)

// key is what `lbd keygen` prints.
const key = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="

// pem is a private key that is none.
const pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIFq83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJAoGCCqGSM49A\nwEHoUQDQgAE5ecret0\n-----END EC PRIVATE KEY-----"

func TestScrub(t *testing.T) {
	s := newScrubber([]string{"hunter2 \"x\"", "5ecret0!", "abc", ""})
	for text, want := range map[string]string{
		"key " + key + " here": "key (blanked) here",
		"# " + key:             "# (blanked)",
		`"` + key + `"`:        `"(blanked)"`,
		strings.NewReplacer("+", "-", "/", "_").Replace(key): "(blanked)",
		"a\n" + pem + "\nb":                          "a\n-----BEGIN (blanked)\nb",
		strings.ReplaceAll(pem, "\n", `\n`) + `"}`:   `-----BEGIN (blanked)"}`,
		"-----BEGIN PRIVATE KEY-----\nMIG":           "-----BEGIN (blanked)",
		strings.Split(pem, "\n")[1]:                  "(blanked)", // of a key whose first line was cut off
		"http://u:p@h:80/x https://u@h":              "http://(blanked)@h:80/x https://(blanked)@h",
		"http://u:p@ss@h/":                           "http://(blanked)@h/",
		"http://10.0.0.1:80/a@b":                     "http://10.0.0.1:80/a@b",
		"Authorization: Basic dTpw\nb":               "Authorization: (blanked)\nb",
		"-H Bearer abcdefgh.1":                       "-H Bearer (blanked)",
		"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2ln end": "(blanked) end",
		`password=x, b`:                              `password=(blanked), b`,
		`"password": "a \"b\" c", "d": 1`:            `"password": (blanked), "d": 1`,
		`\"password\": \"a b\", d`:                   `\"password\": (blanked), d`,
		"PASSWORD='a b' c":                           "PASSWORD=(blanked) c",
		"auth_pass 1234":                             "auth_pass (blanked)",
		"secret token: abc":                          "secret token: (blanked)",
		"?token=abc&exclude=etcd":                    "?token=(blanked)&exclude=etcd",
		"passwordFile: /etc/lbd/tor1":                "passwordFile: /etc/lbd/tor1",
		"keyFile: /etc/lbd/gossip.key":               "keyFile: /etc/lbd/gossip.key",
		"the password is wrong":                      "the password is wrong",
		"bypass the token of it":                     "bypass the token of it",
		"password: (blanked)":                        "password: (blanked)",
		"say hunter2 \"x\", abc":                     "say (blanked), abc",
		`say "hunter2 \"x\""`:                        `say "(blanked)"`,
		"5ecret0!5ecret0!":                           "(blanked)(blanked)",
		strings.Repeat("0123456789abcdef", 4):        strings.Repeat("0123456789abcdef", 4), // a digest
		"lbd_a_metric_with_a_name_that_is_rather_long_total{node=\"m1\"} 1": "lbd_a_metric_with_a_name_that_is_rather_long_total{node=\"m1\"} 1",
	} {
		if got := string(s.scrub([]byte(text))); got != want {
			t.Errorf("%s\n%s\nwant\n%s", text, got, want)
		}
	}
}
