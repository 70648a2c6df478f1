// Package fileaccess tells why a file cannot be read: whose it is, who asks, and what
// to do. In a pod root has no CAP_DAC_OVERRIDE, so it cannot read the files of other
// users, which surprises everybody who moves a daemon from a unit to a pod.
package fileaccess

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// User is somebody who opens files by their permission bits alone, without the
// capabilities that override them.
type User struct {
	UID    uint32
	Groups []uint32 // the primary one too
}

// Root is root in a container that drops all capabilities.
var Root = User{UID: 0, Groups: []uint32{0}}

// Current is the user that this process runs as.
func Current() User {
	u := User{UID: uint32(os.Geteuid()), Groups: []uint32{uint32(os.Getegid())}}
	more, _ := os.Getgroups() // without them a group may be taken for a foreign one
	for _, g := range more {
		u.Groups = append(u.Groups, uint32(g))
	}
	return u
}

// Lookup returns the user of that name; false if this host has none.
func Lookup(name string) (User, bool) {
	found, err := user.Lookup(name)
	if err != nil {
		return User{}, false
	}
	uid, errUID := strconv.ParseUint(found.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(found.Gid, 10, 32)
	return User{UID: uint32(uid), Groups: []uint32{uint32(gid)}}, errUID == nil && errGID == nil
}

// Name is the name of the user, or the number of one that has no name here.
func (u User) Name() string { return userName(u.UID) }

// String names the user as in a sentence.
func (u User) String() string {
	if u.UID == 0 {
		return "root without CAP_DAC_OVERRIDE (as in a pod)"
	}
	return "user " + u.Name()
}

// Read returns nil if u may read the file, as far as owner, group and mode of it and of
// its directories tell: access control lists and security modules are not asked. Else
// the error says whose the file or its directory is, and how to change that.
func (u User) Read(file string) error { return u.open(file, 4) }

// Write is Read for writing, and for creating a file that does not exist.
func (u User) Write(file string) error { return u.open(file, 2) }

// open looks for the first part of a path that refuses; want is a bit of a mode.
func (u User) open(file string, want uint32) error {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	dir := filepath.Dir(file)
	for at := "/"; ; {
		if err := u.may(at, "its directory "+at, 1); err != nil {
			return err
		}
		if at == dir {
			break
		}
		next, _, _ := strings.Cut(strings.TrimPrefix(dir[len(at):], "/"), "/")
		at = filepath.Join(at, next)
	}
	err := u.may(file, "it", want)
	if want == 2 && errors.Is(err, fs.ErrNotExist) {
		return u.may(dir, "its directory "+dir, 2)
	}
	return err
}

// may checks one part of a path, called what in the error.
func (u User) may(path, what string, want uint32) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	bits := st.Mode & 7
	cure := fmt.Sprintf("chown %s: %s", u.Name(), path)
	switch {
	case st.Uid == u.UID:
		bits = st.Mode >> 6 & 7
		cure = "chmod u+rw " + path
	case slices.Contains(u.Groups, st.Gid):
		bits = st.Mode >> 3 & 7
	}
	if info.IsDir() && want == 1 {
		cure = "chmod a+x " + path
	}
	if bits&want != 0 {
		return nil
	}
	return &refusal{what: what, owner: st.Uid, mode: info.Mode().Perm(), cure: cure}
}

// refusal is a file or directory that a user may not use.
type refusal struct {
	what  string
	owner uint32
	mode  fs.FileMode
	cure  string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s belongs to %s (mode %04o); `%s`", r.what, userName(r.owner), r.mode, r.cure)
}

// Explain adds to an error about a file that this process was not allowed to open whose
// it is and what to do. An error for another reason, such as the rules of a security
// module, stays as it is.
func Explain(err error) error {
	at, ok := errors.AsType[*fs.PathError](err)
	if !ok || !errors.Is(at.Err, syscall.EACCES) {
		return err
	}
	me := Current()
	for _, try := range []func(string) error{me.Read, me.Write} {
		if why, ok := errors.AsType[*refusal](try(at.Path)); ok {
			return &fs.PathError{Op: at.Op, Path: at.Path, Err: fmt.Errorf("%w for %s, since %w", at.Err, me, why)}
		}
	}
	return err
}

// Owner is the user to whom the file belongs; "" if that cannot be told.
func Owner(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return userName(st.Uid)
}

// userName is the name of a user, else its number: an image has no list of users.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil && u.Username != "" {
		return u.Username
	}
	if uid == 0 {
		return "root"
	}
	return number
}
