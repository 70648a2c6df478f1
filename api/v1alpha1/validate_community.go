package v1alpha1

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of a path. An UPDATE has 4096 bytes (RFC 4271 section 4.1).
const (
	maxCommunities = 63
	maxPrepend     = 10
)

// Validate returns every rule that the object breaks, in the order of its
// fields.
func (c *Community) Validate() []FieldError {
	var k checker
	k.typeMeta(c.TypeMeta, KindCommunity)
	k.objectMeta(c.Metadata)
	if len(c.Spec.Communities) == 0 {
		k.bad("spec.communities", nil, "must have at least one entry")
	}
	k.atMost("spec.communities", len(c.Spec.Communities), maxAliases)
	first := make(map[string]int)
	for i, entry := range c.Spec.Communities {
		path := fmt.Sprintf("spec.communities[%d]", i)
		k.alias(path, entry)
		if other, again := first[entry.Name]; again && entry.Name != "" {
			k.bad(path+".name", entry.Name, "is also the name of spec.communities[%d]", other)
			continue
		}
		first[entry.Name] = i
	}
	return k.errs
}

// alias checks one name and what it stands for.
func (k *checker) alias(path string, a CommunityAlias) {
	switch _, known := wellKnown[a.Name]; {
	case a.Name == "":
		k.bad(path+".name", nil, ruleRequired)
	case !isQualified(a.Name):
		k.bad(path+".name", a.Name, "must be 1 to 63 letters, digits, -, _ and ., beginning and ending with a letter or digit")
	case known:
		k.bad(path+".name", a.Name, "is the name of a well-known community, which needs no entry")
	}
	if a.Value == "" {
		k.bad(path+".value", nil, ruleRequired)
		return
	}
	_, err := ParseCommunity(a.Value)
	if !strings.Contains(a.Value, ":") { // the name of another one
		err = errCommunityValue
	}
	if err != nil {
		k.bad(path+".value", a.Value, "%v", err)
	}
}

// bgpAdvertise checks how a VirtualIP is advertised by BGP. Whether names exist
// is for others to say.
func (k *checker) bgpAdvertise(path string, a *BGPAdvertise) {
	k.eachOnce(path+".peers", a.Peers, func(at, name string) {
		k.want(isSubdomain(name), at, name, ruleSubdomain)
	})
	k.eachOnce(path+".communities", a.Communities, func(at, text string) {
		if _, err := ParseCommunity(text); err != nil && !errors.Is(err, ErrCommunityName) {
			k.bad(at, text, "%v", err)
		}
	})
	k.eachOnce(path+".largeCommunities", a.LargeCommunities, func(at, text string) {
		if _, err := ParseLargeCommunity(text); err != nil {
			k.bad(at, text, "%v", err)
		}
	})
	k.atMost(path+".communities", len(a.Communities), maxCommunities)
	k.atMost(path+".largeCommunities", len(a.LargeCommunities), maxCommunities)
	if a.LocalPref != nil && *a.LocalPref == 0 {
		k.bad(path+".localPref", 0, "must be from 1 to 4294967295")
	}
	between(k, path+".asPathPrepend", a.ASPathPrepend, 0, maxPrepend)
}

// atMost adds an error about a list that is too long.
func (k *checker) atMost(path string, n, limit int) {
	if n > limit {
		k.bad(path, nil, "has %d entries; at most %d are allowed", n, limit)
	}
}

// eachOnce calls check for each entry of a list, and refuses one that is there
// already.
func (k *checker) eachOnce(path string, list []string, check func(at, text string)) {
	seen := make(map[string]bool, len(list))
	for i, text := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if seen[text] {
			k.bad(at, text, "is listed twice")
			continue
		}
		seen[text] = true
		check(at, text)
	}
}
