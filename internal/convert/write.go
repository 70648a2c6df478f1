package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML returns the objects as documents.
func (r Result) YAML() ([]byte, error) {
	var out bytes.Buffer
	for i, o := range r.Objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		// JSON is YAML; that way the names and the order of the fields are those of
		// the structs.
		data, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(ascii(data), &doc); err != nil {
			return nil, err
		}
		plain(&doc)
		enc := yaml.NewEncoder(&out)
		enc.SetIndent(2)
		if err := enc.Encode(&doc); err != nil {
			return nil, err
		}
		if err := enc.Close(); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// ascii escapes in JSON what YAML may refuse.
func ascii(data []byte) []byte {
	var out []byte
	for _, r := range string(data) {
		switch {
		case r < 0x7f:
			out = append(out, byte(r))
		case r <= 0xffff:
			out = fmt.Appendf(out, `\u%04x`, r)
		default: // as YAML writes it
			out = fmt.Appendf(out, `\U%08x`, r)
		}
	}
	return out
}

// plain writes mappings and lists one entry a line, and takes the quotes off
// strings that every version of YAML reads as such.
func plain(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || unquoted.MatchString(n.Value) && !isWord[strings.ToLower(n.Value)] {
		n.Style = 0
	}
	if len(n.Content) == 0 && n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle // {} and []
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// unquoted matches names and paths, IPv4 addresses, CIDRs and ranges, and
// durations.
var unquoted = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_./-]*|/[A-Za-z0-9_./-]*|\d+(\.\d+){3}([0-9./ -]*\d)?|(\d+(h|m|s|ms))+)$`)

// isWord has the words that YAML 1.1 does not read as strings.
var isWord = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true, "true": true, "false": true, "null": true}
