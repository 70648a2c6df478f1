package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// maxErrors bounds the errors of paths that one report tells.
const maxErrors = 5

// pathErrors are those of one Apply.
type pathErrors struct {
	first []error
	n     int
}

func (e *pathErrors) add(err error) {
	if e.n++; e.n <= maxErrors {
		e.first = append(e.first, err)
	}
}

func (e *pathErrors) all() []error {
	if e.n > maxErrors {
		return append(e.first, fmt.Errorf("and %d more paths", e.n-maxErrors))
	}
	return e.first
}

// applyPaths makes the paths those of the decision, unless that is too old to
// rely on.
func (d *Driver) applyPaths(ctx context.Context, want *model.Desired) []error {
	d.pathMu.Lock()
	defer d.pathMu.Unlock()
	paths := want.BGP.Paths
	if d.outlived(want) {
		paths = nil
	}
	errs := &pathErrors{}
	if d.setPaths(ctx, paths, errs) {
		d.deleteOthers(paths, errs)
	}
	return errs.all()
}

// Extend has nothing to do before there are peers; after that the report has news
// at every turn.
func (d *Driver) Extend(time.Time) bool {
	if !d.peerMu.TryLock() {
		return false
	}
	defer d.peerMu.Unlock()
	return !d.started
}

// setPaths adds and changes paths. It tells whether it came to the end: nothing is
// withdrawn before all that is wanted was tried.
func (d *Driver) setPaths(ctx context.Context, paths []model.BGPPath, errs *pathErrors) bool {
	for i := range paths {
		p := &paths[i]
		had, ok := d.paths[p.Prefix]
		if ok && had.Equal(p) {
			continue
		}
		if ctx.Err() != nil {
			errs.add(fmt.Errorf("path %s: %w", p.Prefix, ctx.Err()))
			return false
		}
		if err := d.speaker.SetPath(*p); err != nil {
			errs.add(err)
			continue
		}
		d.paths[p.Prefix] = *p
		for i := range p.To {
			to := &p.To[i]
			d.log.Debug("path set", "prefix", p.Prefix, "peers", to.Peers, "shutdown", to.Shutdown)
		}
	}
	return true
}

// deleteOthers withdraws every path but these, which are sorted.
func (d *Driver) deleteOthers(paths []model.BGPPath, errs *pathErrors) {
	for prefix := range d.paths {
		if hasPath(paths, prefix) {
			continue
		}
		if err := d.speaker.DeletePath(prefix); err != nil {
			errs.add(err)
			continue
		}
		delete(d.paths, prefix)
		d.log.Debug("path withdrawn", "prefix", prefix)
	}
}

// hasPath tells whether a path to the prefix is among these, which are sorted.
func hasPath(paths []model.BGPPath, want netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(paths, want, func(p model.BGPPath, want netip.Prefix) int { return model.ComparePaths(p.Prefix, want) })
	return found
}
