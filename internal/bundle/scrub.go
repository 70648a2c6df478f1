package bundle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"

	"lbd.dev/lbd/internal/config"
)

// Blank stands for what was a secret.
const Blank = config.Blank

// shortest is how long a secret is that is looked for in all files. A shorter one would take
// away words that have nothing to do with it; it is blanked where it is configured.
const shortest = 6

// scrubber blanks secrets: those that it knows, and what looks like one.
type scrubber struct {
	known [][]byte // the longest first
}

func newScrubber(secrets []string) *scrubber {
	var s scrubber
	for _, word := range secrets {
		if len(word) < shortest {
			continue
		}
		s.known = append(s.known, []byte(word))
		quoted := strconv.Quote(word)
		s.known = append(s.known, []byte(quoted[1:len(quoted)-1]))
		if quoted, err := json.Marshal(word); err == nil { // as JSON and logs have it
			s.known = append(s.known, quoted[1:len(quoted)-1])
		}
	}
	slices.SortFunc(s.known, func(a, b []byte) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return bytes.Compare(a, b)
	})
	s.known = slices.CompactFunc(s.known, bytes.Equal)
	return &s
}

// shape is what secrets look like. Of a match, what the two groups have stays: the first is
// before the secret, the second behind it.
type shape struct {
	// hints are in each line that has such a secret, in small letters. They are far cheaper to
	// look for.
	hints []string
	find  *regexp.Regexp
}

// words are names of what is a secret.
var words = []string{"pass", "pwd", "secret", "token", "key"}

// shapes are looked for in each line, one after another.
var shapes = []shape{
	{[]string{"://"}, regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'<>]*(@)`)},
	{[]string{"authorization"}, regexp.MustCompile(`(?i)(authorization["']?[ \t]*[:=][ \t]*)[^\r\n]+()`)},
	{[]string{"bearer"}, regexp.MustCompile(`(?i)(\bbearer[ \t]+)[a-z0-9._~+/=-]{8,}()`)},
	{[]string{"eyj"}, regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*()`)},
	// password: x, "token": "x", --secret=x, also quoted once more; but not passwordFile: /x.
	{words, regexp.MustCompile(`(?i)((?:pass(?:word|wd|phrase)|\bpass|\bpwd|auth[_-]?pass|secret|token|api[_-]?key|private[_-]?key|client-key-data)\\?["']?[ \t]*[:=][ \t]*)` +
		`(?:"(?:\\.|[^"\\])*"|'[^']*'|\\".*?\\"|[^\s,;}&]+)()`)},
	{[]string{"auth_pass"}, regexp.MustCompile(`(?i)(\bauth_pass[ \t]+)\S+()`)},
}

// privateKey is one in PEM, of many lines or with these quoted. One that has no end takes
// everything with it.
var privateKey = shape{find: regexp.MustCompile(`(?s)(-----BEGIN )[A-Z0-9 ]*PRIVATE KEY.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)()`)}

// scrub returns data without secrets.
func (s *scrubber) scrub(data []byte) []byte {
	for _, word := range s.known {
		data = bytes.ReplaceAll(data, word, []byte(Blank))
	}
	data = privateKey.scrub(data)
	out := make([]byte, 0, len(data))
	for line := range bytes.Lines(data) {
		small := bytes.ToLower(line)
		for _, sh := range shapes {
			if slices.ContainsFunc(sh.hints, func(h string) bool { return bytes.Contains(small, []byte(h)) }) {
				line = sh.scrub(line)
			}
		}
		out = appendWithoutKeys(out, line)
	}
	return out
}

func (sh *shape) scrub(data []byte) []byte {
	var out []byte
	at := 0
	for _, m := range sh.find.FindAllSubmatchIndex(data, -1) {
		if bytes.Equal(bytes.Trim(data[m[3]:m[4]], `"'`), []byte(Blank)) {
			continue
		}
		out = append(append(append(out, data[at:m[3]]...), Blank...), data[m[4]:m[5]]...)
		at = m[1]
	}
	if at == 0 {
		return data
	}
	return append(out, data[at:]...)
}

// Runs of letters of base64 that are keys: one of 32 bytes with its padding, and a line of a
// longer one without.
const (
	paddedKey = 43
	lineOfKey = 60
)

func appendWithoutKeys(out, line []byte) []byte {
	for at := 0; at < len(line); {
		end := at
		for end < len(line) && isBase64(line[end]) {
			end++
		}
		padded := end
		for padded < len(line) && padded < end+2 && line[padded] == '=' {
			padded++
		}
		if n := end - at; n >= paddedKey && padded > end || n >= lineOfKey && mixed(line[at:end]) {
			out, at = append(out, Blank...), padded
			continue
		}
		end = min(end+1, len(line))
		out, at = append(out, line[at:end]...), end
	}
	return out
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

// mixed tells a part of a key from a path, a digest and a name.
func mixed(run []byte) bool {
	const capitals, small, digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789"
	return bytes.ContainsAny(run, capitals) && bytes.ContainsAny(run, small) && bytes.ContainsAny(run, digits)
}
