package v1alpha1

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Community gives names to BGP communities.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=bgpcomm
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="First Name",type=string,JSONPath=`.spec.communities[0].name`,description="The first name that it defines"
// +kubebuilder:printcolumn:name="First Value",type=string,JSONPath=`.spec.communities[0].value`,description="What that name stands for"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type Community struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; nothing refers to that name.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec has the names.
	Spec CommunitySpec `json:"spec"`
	// Status is what the controller found; files have none.
	Status *ObjectStatus `json:"status,omitempty"`
}

// CommunitySpec is a list of names.
type CommunitySpec struct {
	// Communities are 1 to 1024.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	Communities []CommunityAlias `json:"communities"`
}

// CommunityAlias is the name of one community.
type CommunityAlias struct {
	// Name is unique among all Community objects: at most 63 letters, digits, -,
	// _ and ., and not the name of a well-known community.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['no-export', 'no-advertise', 'no-export-subconfed', 'local-as', 'no-peer', 'graceful-shutdown'])",message="is the name of a well-known community, which needs no entry"
	Name string `json:"name"`
	// Value is "a:b" (RFC 1997), each from 0 to 65535, or "large:a:b:c" (RFC
	// 8092), each from 0 to 4294967295, but for a, which is below that.
	// +kubebuilder:validation:MaxLength=38
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,4}):(0|[1-9][0-9]{0,4})$') ? self.split(':').all(n, int(n) <= 65535) : self.matches('^large(:(0|[1-9][0-9]{0,9})){3}$') && self.substring(6).split(':').all(n, int(n) <= 4294967295)",message="must be a:b, each from 0 to 65535, or large:a:b:c, each from 0 to 4294967295"
	// +kubebuilder:validation:XValidation:rule="self != '65535:0'",message="is GRACEFUL_SHUTDOWN, which lbd sends by itself in a drain"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('large:4294967295:')",message="begins with 4294967295, which is reserved (RFC 8092 section 5): lbd marks its own paths with it"
	Value string `json:"value"`
}

// Default fills in what is unset: nothing.
func (c *Community) Default() {}

// The well-known communities that rules speak of.
const (
	CommunityGracefulShutdown uint32 = 0xffff0000 // RFC 8326
	CommunityBlackhole        uint32 = 0xffff029a // RFC 7999
	CommunityNoExport         uint32 = 0xffffff01 // RFC 1997
	CommunityNoAdvertise      uint32 = 0xffffff02 // RFC 1997
	communityNoExportSub      uint32 = 0xffffff03 // RFC 1997
	communityNoPeer           uint32 = 0xffffff04 // RFC 3765
)

// reservedAdministrator is a first number of a large community that nobody may
// use, RFC 8092 section 5. The speaker marks paths with it: a community like that
// would decide which peers get the path, and would be removed.
const reservedAdministrator uint32 = 4294967295

// wellKnown are the names that need no Community object.
var wellKnown = map[string]uint32{
	"no-export":           CommunityNoExport,
	"no-advertise":        CommunityNoAdvertise,
	"no-export-subconfed": communityNoExportSub,
	"local-as":            communityNoExportSub, // what routers call it
	"no-peer":             communityNoPeer,
	"graceful-shutdown":   CommunityGracefulShutdown, // only to be refused
}

// WellKnownCommunities returns the names that stand for a community without a
// Community object, sorted.
func WellKnownCommunities() []string {
	names := slices.Sorted(maps.Keys(wellKnown))
	return slices.DeleteFunc(names, func(n string) bool { return wellKnown[n] == CommunityGracefulShutdown })
}

// CommunityValue is one community, standard (RFC 1997) or large (RFC 8092).
type CommunityValue struct {
	// IsLarge says which of the two that follow counts.
	IsLarge  bool
	Standard uint32
	Large    [3]uint32
}

var (
	// ErrCommunityName is returned for a word that may be the name of a community.
	ErrCommunityName  = errors.New("is not the name of a community")
	errCommunityValue = errors.New("must be a:b, each from 0 to 65535, or large:a:b:c, each from 0 to 4294967295")
	errLargeCommunity = errors.New("must be a:b:c, each from 0 to 4294967295")
	errReservedLarge  = errors.New("begins with 4294967295, which is reserved (RFC 8092 section 5): lbd marks its own paths with it")
	errGracefulByLBD  = errors.New("is GRACEFUL_SHUTDOWN, which lbd sends by itself in a drain")
)

// ParseCommunity parses "a:b", "large:a:b:c" or the name of a well-known
// community. The error completes a sentence that begins with s; it is
// ErrCommunityName if s could be a name that a Community object defines.
func ParseCommunity(s string) (CommunityValue, error) {
	v, err := parseCommunityLiteral(s)
	if std, ok := wellKnown[s]; ok {
		v, err = CommunityValue{Standard: std}, nil
	} else if isQualified(s) {
		return v, ErrCommunityName
	}
	if err == nil && !v.IsLarge && v.Standard == CommunityGracefulShutdown {
		err = errGracefulByLBD
	}
	return v, err
}

// ParseLargeCommunity parses "a:b:c". The error completes a sentence that begins
// with s.
func ParseLargeCommunity(s string) (CommunityValue, error) {
	v := CommunityValue{IsLarge: true}
	parts, ok := decimals(s, 3, 32)
	if !ok {
		return v, errLargeCommunity
	}
	copy(v.Large[:], parts)
	if parts[0] == reservedAdministrator {
		return v, errReservedLarge
	}
	return v, nil
}

// parseCommunityLiteral parses "a:b" or "large:a:b:c".
func parseCommunityLiteral(s string) (CommunityValue, error) {
	if rest, ok := strings.CutPrefix(s, "large:"); ok {
		v, err := ParseLargeCommunity(rest)
		if errors.Is(err, errLargeCommunity) {
			err = errCommunityValue
		}
		return v, err
	}
	parts, ok := decimals(s, 2, 16)
	if !ok {
		return CommunityValue{}, errCommunityValue
	}
	return CommunityValue{Standard: parts[0]<<16 | parts[1]}, nil
}

// decimals parses count numbers of so many bits, joined by colons, in their
// shortest form.
func decimals(s string, count, bits int) ([]uint32, bool) {
	words := strings.Split(s, ":")
	if len(words) != count {
		return nil, false
	}
	parts := make([]uint32, count)
	for i, w := range words {
		n, err := strconv.ParseUint(w, 10, bits)
		if err != nil || strconv.FormatUint(n, 10) != w {
			return nil, false
		}
		parts[i] = uint32(n)
	}
	return parts, true
}
