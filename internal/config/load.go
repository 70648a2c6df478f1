package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Load reads a file, or all *.yaml and *.yml of a directory, and the keyring
// that they name. The error joins an *Error for everything that is wrong; the
// Config is nil then.
func Load(path string) (*Config, error) {
	l := loader{path: path, hostName: hostName()}
	return l.load()
}

// Summary is what Validate found.
type Summary struct {
	Objects  int
	Warnings []string
}

// Validate checks what Load would read, on any machine: neither a
// NodeConfiguration nor the keyring need be there.
func Validate(path string) (Summary, error) {
	l := loader{path: path, hostName: "any-node", anywhere: true}
	cfg, err := l.load()
	if err != nil {
		return Summary{Objects: l.objects}, err
	}
	return Summary{Objects: l.objects, Warnings: cfg.Warnings}, nil
}

// hostName returns the host name as Kubernetes names nodes: in lower case.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "" // validation then asks for a nodeName
	}
	return strings.ToLower(name)
}

// loader reads a configuration, several times if need be.
type loader struct {
	path     string
	hostName string // stands in for a nodeName that is missing
	anywhere bool   // see Validate

	// Of the last load, also of one that failed.
	keyFile string
	objects int
}

// load reads everything anew.
func (l *loader) load() (*Config, error) {
	objects, errs := l.parse()
	node := crossCheck(objects)
	for _, o := range objects {
		errs = append(errs, o.errs...)
	}
	l.objects = len(objects)
	if node == nil && !l.anywhere && len(errs) == 0 {
		errs = append(errs, fileError(l.path, 0, "has no NodeConfiguration; add a document that begins with "+
			"`apiVersion: lbd.dev/v1alpha1` and `kind: NodeConfiguration`; `lbd manifest config` prints one"))
	}
	var keys [][]byte
	var warning string
	if node != nil {
		l.keyFile = node.node.Gossip.KeyFile
		if l.keyFile != "" && !node.isBroken("gossip.keyFile") {
			var keyErrs []*Error
			keys, warning, keyErrs = l.keys(node)
			errs = append(errs, keyErrs...)
		}
	}
	if err := join(errs); err != nil {
		return nil, err
	}
	cfg := newConfig(objects, node)
	cfg.hostName = l.hostName
	cfg.Node.Gossip.Keys = keys
	if warning != "" {
		cfg.Warnings = append(cfg.Warnings, warning)
	}
	if len(cfg.VIPs) == 0 && !l.anywhere {
		cfg.Warnings = append(cfg.Warnings, l.path+": has no VirtualIP; there is nothing to keep reachable")
	}
	return cfg, nil
}

// parse reads the files.
func (l *loader) parse() (objects []*object, errs []*Error) {
	files, err := listFiles(l.path)
	if err != nil {
		return nil, []*Error{err}
	}
	for _, file := range files {
		data, _, err := readFile(file, maxFile)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		parsed, end := parseFile(file, data, l.hostName)
		objects = append(objects, parsed...)
		if end != nil {
			errs = append(errs, end)
		}
	}
	return objects, errs
}

// keys reads the keyring that the node names.
func (l *loader) keys(node *object) (keys [][]byte, warning string, errs []*Error) {
	keys, info, errs := readKeys(l.keyFile)
	if len(errs) > 0 {
		if _, statErr := os.Stat(l.keyFile); l.anywhere && errors.Is(statErr, fs.ErrNotExist) {
			return nil, fmt.Sprintf("%s: does not exist on this machine", l.keyFile), nil
		}
		for _, e := range errs {
			e.Field.Rule += fmt.Sprintf(" (gossip.keyFile of %s, %s:%d)", node.title(), node.file, node.lineOf("gossip.keyFile"))
		}
		return nil, "", errs
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		warning = fmt.Sprintf("%s: every user of this host can use the key (mode %04o); chmod 600, owned by the user that lbd runs as", l.keyFile, mode)
	}
	return keys, warning, nil
}
