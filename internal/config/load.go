package config

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Load reads a file, or all *.yaml and *.yml of a directory, and the keyring and
// the files with passwords that they name. The error joins an *Error for everything that is wrong; the
// Config is nil then.
func Load(path string) (*Config, error) {
	l := loader{path: path, hostName: hostName()}
	return l.load()
}

// Summary is what Validate found.
type Summary struct {
	Objects int
	// Skipped counts the objects that were passed over because SkipForeign was given.
	Skipped int
	// Warnings are found only in what has no errors.
	Errors, Warnings []*Error
}

// Stdin stands for standard input as a path of Validate.
const Stdin = "-"

// Option changes what Validate does.
type Option func(*loader)

// SkipForeign passes over objects that are not for files: those of other API groups, and those
// that lbd has in clusters only.
func SkipForeign(l *loader) { l.skipForeign = true }

// Validate checks what Load would read, on any machine: neither a
// NodeConfiguration nor the files with keys and passwords need be there. The error joins
// Summary.Errors.
func Validate(path string, options ...Option) (Summary, error) {
	l := loader{path: path, hostName: "any-node", anywhere: true, excerpts: make(map[string]*excerpts)}
	for _, o := range options {
		o(&l)
	}
	cfg, err := l.load()
	sum := Summary{Objects: l.objects, Skipped: l.skipped}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			sum.Errors = append(sum.Errors, e.(*Error))
		}
	} else {
		sum.Warnings = cfg.warnings
	}
	for _, e := range slices.Concat(sum.Errors, sum.Warnings) {
		e.Excerpt = l.excerpts[e.File].of(e.Line, e.Column)
	}
	return sum, err
}

// NodeNameVariable is the variable of the environment that names the node where
// the files do not: a DaemonSet knows the name of the Node, and kubelet may have
// given it another one than the host (--hostname-override).
const NodeNameVariable = "LBD_NODE_NAME"

// hostName returns the name that the environment gives, else the host name as
// Kubernetes names nodes: in lower case.
func hostName() string {
	if name := os.Getenv(NodeNameVariable); name != "" {
		return name
	}
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
	// skipForeign: see SkipForeign.
	skipForeign bool
	// excerpts are those of the files that were read; nil: none are wanted.
	excerpts map[string]*excerpts

	// Of the last load, also of one that failed.
	watched []string // files whose content is part of the configuration
	objects int
	skipped int
}

// load reads everything anew.
func (l *loader) load() (*Config, error) {
	objects, errs := l.parse()
	node := crossCheck(objects, len(errs) == 0)
	clusterWarnings := l.noClusterSecrets(objects, node)
	for _, o := range objects {
		errs = append(errs, o.errs...)
	}
	l.objects = len(objects)
	if node == nil && !l.anywhere && len(errs) == 0 {
		errs = append(errs, fileError(l.path, 0, "has no NodeConfiguration; add a document that begins with "+
			"`apiVersion: lbd.dev/v1alpha1` and `kind: NodeConfiguration`; `lbd manifest config` prints one"))
	}
	l.watched = nil
	keys, warnings, keyErrs := l.keys(node)
	secrets, secretWarnings, secretErrs := l.secrets(objects, node)
	errs = slices.Concat(errs, keyErrs, secretErrs)
	if err := join(errs); err != nil {
		return nil, err
	}
	cfg := newConfig(objects, node, secrets)
	cfg.hostName = l.hostName
	cfg.watched = l.watched
	cfg.Node.Gossip.Keys = keys
	cfg.warnings = slices.Concat(cfg.warnings, clusterWarnings, warnings, secretWarnings)
	if len(cfg.VIPs) == 0 && cfg.Node.Kubernetes == nil && cfg.Node.Machines == nil && !l.anywhere {
		cfg.warnings = append(cfg.warnings, fileError(l.path, 0, "has no VirtualIP; there is nothing to keep reachable"))
	}
	for _, w := range cfg.warnings {
		cfg.Warnings = append(cfg.Warnings, w.Error())
	}
	return cfg, nil
}

func (l *loader) parse() (objects []*object, errs []*Error) {
	files, err := []string{Stdin}, (*Error)(nil)
	if l.path != Stdin || !l.anywhere {
		files, err = listFiles(l.path)
	}
	if err != nil {
		return nil, []*Error{err}
	}
	for _, file := range files {
		data, mode, err := l.read(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		parsed, end := parseFile(file, data, l.hostName)
		if l.excerpts != nil {
			l.excerpts[file] = newExcerpts(data, parsed, end)
		}
		if l.skipForeign {
			all := len(parsed)
			parsed = slices.DeleteFunc(parsed, func(o *object) bool { return o.foreign })
			l.skipped += all - len(parsed)
		}
		for _, o := range parsed {
			o.mode = mode
		}
		objects = append(objects, parsed...)
		if end != nil {
			errs = append(errs, end)
		}
	}
	return objects, errs
}

// read reads a file. Only Validate reads standard input and pipes, which cannot be read
// again and may make it wait.
func (l *loader) read(file string) ([]byte, fs.FileMode, *Error) {
	if l.anywhere && file == Stdin {
		data, err := readStream("standard input", os.Stdin, maxFile)
		return data, 0, err
	}
	if info, err := os.Stat(file); l.anywhere && file == l.path && err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0 {
		f, err := os.Open(file)
		if err != nil {
			return nil, 0, fileError(file, 0, "%v", cause(err))
		}
		defer func() { _ = f.Close() }()
		data, rerr := readStream(file, f, maxFile)
		return data, 0, rerr
	}
	data, info, err := readFile(file, maxFile)
	if err != nil {
		return nil, 0, err
	}
	return data, info.Mode(), nil
}

// keys reads the keyring that the node names, if any.
func (l *loader) keys(node *object) (keys [][]byte, warnings, errs []*Error) {
	if node == nil || node.node.Gossip.KeyFile == "" {
		return nil, nil, nil
	}
	file := node.node.Gossip.KeyFile
	l.watched = append(l.watched, file)
	if node.isBroken("gossip.keyFile") {
		return nil, nil, nil
	}
	keys, info, errs := readKeys(file)
	if len(errs) > 0 {
		if l.anywhere && missing(file) {
			return nil, []*Error{fileError(file, 0, "does not exist on this machine")}, nil
		}
		for _, e := range errs {
			e.Field.Rule += fmt.Sprintf(" (gossip.keyFile of %s, %s:%d)", node.title(), node.file, node.lineOf("gossip.keyFile"))
		}
		return nil, nil, errs
	}
	if mode := info.Mode(); worldReadable(mode) {
		warnings = append(warnings, fileError(file, 0, "every user of this host can use the key (mode %04o); chmod 600, owned by the user that lbd runs as", mode.Perm()))
	}
	return keys, warnings, nil
}
