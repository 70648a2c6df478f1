package v1alpha1

import (
	"fmt"
	"strings"
)

// MaxBFDKey is the length of the longest key of SHA1 authentication, in bytes
// (RFC 5880 section 4.4).
const MaxBFDKey = 20

// Validate returns every rule that the defaulted object breaks, in the order of
// its fields.
func (p *BFDProfile) Validate() []FieldError {
	var k checker
	k.typeMeta(p.TypeMeta, KindBFDProfile)
	k.objectMeta(p.Metadata)
	s := &p.Spec
	k.bfdInterval("spec.receiveInterval", s.ReceiveInterval)
	k.bfdInterval("spec.transmitInterval", s.TransmitInterval)
	between(&k, "spec.detectMultiplier", s.DetectMultiplier, 2, 255)
	between(&k, "spec.minimumTtl", s.MinimumTTL, 1, 254)
	k.bfdAuth(s)
	return k.errs
}

// bfdInterval adds an error unless BFD runs at an interval of v milliseconds.
func (k *checker) bfdInterval(path string, v int32) {
	const longest = 60000
	if v < MinBFDInterval {
		k.bad(path, v, "must be from %d to %d: shorter intervals, which earlier versions took, end sessions on a node that is busy", MinBFDInterval, longest)
		return
	}
	between(k, path, v, MinBFDInterval, longest)
}

// bfdAuth checks the fields about authentication.
func (k *checker) bfdAuth(s *BFDProfileSpec) {
	between(k, "spec.authKeyID", s.AuthKeyID, 0, 255)
	if s.AuthKeyFile != "" {
		k.want(isAbsPath(s.AuthKeyFile), "spec.authKeyFile", s.AuthKeyFile, ruleAbsPath)
	}
	switch {
	case s.AuthType != "":
		oneOf(k, "spec.authType", s.AuthType, BFDKeyedSHA1, BFDMeticulousSHA1)
		if s.AuthKeyFile == "" {
			k.bad("spec.authKeyFile", nil, "is required with authType")
		}
	case s.AuthKeyFile != "":
		k.bad("spec.authKeyFile", s.AuthKeyFile, "needs authType: %s or %s", BFDKeyedSHA1, BFDMeticulousSHA1)
	case s.AuthKeyID != 0:
		k.bad("spec.authKeyID", s.AuthKeyID, "needs authType: %s or %s", BFDKeyedSHA1, BFDMeticulousSHA1)
	}
}

// BFDKeyRule returns the rule that a key of SHA1 authentication breaks, or "".
// It completes a sentence that begins with the name of the file.
func BFDKeyRule(key string) string {
	return keyRule(key, MaxBFDKey, "has %d bytes; SHA1 authentication takes at most %d (RFC 5880 section 4.4)")
}

// keyRule returns the rule that a key in a file or Secret breaks, or ""; tooLong has its length and most.
func keyRule(key string, most int, tooLong string) string {
	switch {
	case key == "":
		return "is empty"
	case strings.ContainsAny(key, "\r\n\x00"):
		return "must be one line of text"
	case len(key) > most:
		return fmt.Sprintf(tooLong, len(key), most)
	}
	return ""
}
