package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
)

// maxSecretFile bounds a file with a password, in bytes.
const maxSecretFile = 4 << 10

// secretRef is a field that names a file with a password.
type secretRef struct {
	o          *object
	path, file string
	rule       func(key string) string // that a key breaks
	// needed: a session of this node uses it.
	needed bool
}

// secretRefs returns all fields of valid paths to files with passwords.
func secretRefs(objects []*object, node *object) []secretRef {
	used := make(map[string]bool) // BFD profiles
	var refs []secretRef
	add := func(r secretRef) {
		if r.file != "" && !r.o.isBroken(r.path) {
			refs = append(refs, r)
		}
	}
	for _, o := range objects {
		var file, profile string
		ours := node != nil
		switch b := o.body.(type) {
		case *v1alpha1.BGPPeer:
			file, profile = b.Spec.PasswordFile, b.Spec.BFDProfile
			ours = ours && agree.Selects(b.Spec.NodeSelectors, node.node.NodeLabels)
		case *v1alpha1.BGPListener:
			file, profile = b.Spec.PasswordFile, b.Spec.BFDProfile
		}
		used[profile] = used[profile] || ours
		add(secretRef{o, "spec.passwordFile", file, v1alpha1.MD5KeyRule, ours})
	}
	for _, o := range objects {
		if p, ok := o.body.(*v1alpha1.BFDProfile); ok {
			add(secretRef{o, "spec.authKeyFile", p.Spec.AuthKeyFile, v1alpha1.BFDKeyRule, used[p.Metadata.Name]})
		}
	}
	return refs
}

// secrets reads the files with passwords that objects name. A file that is not
// there is an error only if a session of this node uses it: objects are the same
// on all nodes, files need not be.
func (l *loader) secrets(objects []*object, node *object) (content map[string]string, warnings, errs []*Error) {
	content = make(map[string]string)
	warned := make(map[string]bool)
	for _, r := range secretRefs(objects, node) {
		l.watched = append(l.watched, r.file)
		key, mode, err := readSecret(r.file)
		if err != nil && (l.anywhere || !r.needed) && missing(r.file) {
			if l.anywhere && !warned[r.file] {
				warnings = append(warnings, fileError(r.file, 0, "does not exist on this machine"))
			}
			warned[r.file] = true
			continue
		}
		if rule := r.rule(key); err == nil && rule != "" {
			err = fileError(r.file, 0, "%s", rule)
		}
		if err != nil {
			err.Field.Rule += fmt.Sprintf(" (%s of %s, %s:%d)", r.path, r.o.title(), r.o.file, r.o.lineOf(r.path))
			errs = append(errs, err)
			continue
		}
		if worldReadable(mode) && !warned[r.file] {
			warnings = append(warnings, fileError(r.file, 0, "every user of this host can use the password (mode %04o); "+
				"chmod 600, owned by the user that lbd runs as", mode.Perm()))
		}
		warned[r.file] = true
		content[r.file] = key
	}
	return content, warnings, errs
}

// noClusterSecrets refuses the names of Secrets, which are for a cluster only. Files that no
// daemon can read, having no NodeConfiguration, may be for kubectl: Validate warns there.
func (l *loader) noClusterSecrets(objects []*object, node *object) (warnings []*Error) {
	const path = "spec.passwordSecret"
	for _, o := range objects {
		switch {
		case o.peer == nil || o.peer.Spec.PasswordSecret == nil || o.isBroken(path):
		case l.anywhere && node == nil:
			warnings = append(warnings, o.about(o.placeOf(path), v1alpha1.FieldError{
				Path: path, Rule: "is for a cluster: a daemon refuses it in its files, use passwordFile there",
			}))
		default:
			o.breaks(path, nil, "is not for files; use passwordFile")
		}
	}
	return warnings
}

// readSecret returns the content of a file without one newline at its end.
func readSecret(file string) (key string, mode fs.FileMode, err *Error) {
	data, info, err := readFile(file, maxSecretFile)
	if err != nil {
		return "", 0, err
	}
	return strings.TrimSuffix(string(data), "\n"), info.Mode(), nil
}

// missing tells whether there is no such file.
func missing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// secretsGiven refuses fields for secrets that are there but empty, which would
// mean no authentication where a template meant some.
func secretsGiven(o *object) {
	given := func(path, value string) {
		if _, written := o.places[path]; written && value == "" && !o.isBroken(path) {
			o.breaks(path, nil, "is empty; give it a value, or remove it to run without authentication")
		}
	}
	switch b := o.body.(type) {
	case *v1alpha1.BGPPeer:
		given("spec.password", b.Spec.Password)
		given("spec.passwordFile", b.Spec.PasswordFile)
	case *v1alpha1.BGPListener:
		given("spec.passwordFile", b.Spec.PasswordFile)
	case *v1alpha1.BFDProfile:
		given("spec.authType", string(b.Spec.AuthType))
		given("spec.authKeyFile", b.Spec.AuthKeyFile)
	}
}
