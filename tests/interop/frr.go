package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"lbd.dev/lbd/tests/lab"
)

// FRR is zebra, bgpd and, if the configuration has a bfd block, bfdd.
type FRR struct {
	Host             *lab.Host
	Zebra, BGP, BFD  *lab.Proc
	net              *Net
	dir              string
	bgpConf, bfdConf string
}

// StartFRR starts it with an integrated configuration (frr.conf).
func StartFRR(ctx context.Context, n *Net, h *lab.Host, config string) (*FRR, error) {
	// The daemons give up root, so their files are beside the lab's directory, which
	// only root may enter; the name has the lab's prefix, so it goes with the lab.
	f := &FRR{Host: h, net: n, dir: n.Dir + "-frr-" + h.Name}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return nil, fmt.Errorf("frr: %w", err)
	}
	f.bgpConf, f.bfdConf = splitFRR(config)
	err := errors.Join(f.own(f.dir), f.write("vtysh.conf", ""), f.write("zebra.conf", ""))
	if err != nil {
		return nil, err
	}
	return f, f.Start(ctx)
}

// splitFRR gives each daemon its part: the block "bfd" is of bfdd, and the route
// maps, lists and the rest are of bgpd.
func splitFRR(config string) (bgp, bfd string) {
	var a, b strings.Builder
	out := &a
	for line := range strings.Lines(config) {
		if strings.TrimRight(line, "\n") == "exit" { // it would end the whole file
			continue
		}
		if line[0] != ' ' && line[0] != '\n' && line[0] != '!' {
			out = &a
			if strings.TrimSpace(line) == "bfd" {
				out = &b
			}
		}
		out.WriteString(line)
	}
	return a.String(), b.String()
}

func (f *FRR) write(name, text string) error {
	file := filepath.Join(f.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		return fmt.Errorf("frr: %w", err)
	}
	return f.own(file)
}

// frrUser is whom the daemons become. Root is refused: it is not in the group
// that may use vtysh.
const frrUser = "frr"

func (f *FRR) own(file string) error {
	u, err := user.Lookup(frrUser)
	if err != nil {
		return fmt.Errorf("frr: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return fmt.Errorf("frr: %w", err)
	}
	if err := os.Chown(file, uid, -1); err != nil {
		return fmt.Errorf("frr: %w", err)
	}
	return nil
}

// Start starts the daemons that do not run.
func (f *FRR) Start(ctx context.Context) error {
	var err error
	if !f.Zebra.Alive() {
		// Without the option zebra deletes and adds an IPv6 route to change it, and
		// packets in between find none.
		if f.Zebra, err = f.run(ctx, "zebra", "--v6-rr-semantics"); err != nil {
			return err
		}
	}
	if f.bfdConf != "" && !f.BFD.Alive() {
		if err = f.write("bfdd.conf", f.bfdConf); err != nil {
			return err
		}
		if f.BFD, err = f.run(ctx, "bfdd", "--bfdctl", filepath.Join(f.dir, "bfdd.sock")); err != nil {
			return err
		}
	}
	if !f.BGP.Alive() {
		if err = f.write("bgpd.conf", f.bgpConf); err != nil {
			return err
		}
		f.BGP, err = f.run(ctx, "bgpd")
	}
	return err
}

// run starts one daemon in the foreground, with everything that it makes in the
// directory of the host.
func (f *FRR) run(ctx context.Context, name string, more ...string) (*lab.Proc, error) {
	vty := filepath.Join(f.dir, name+".vty")
	if err := os.Remove(vty); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("frr: %w", err)
	}
	argv := append([]string{
		frrDir + name, "-u", frrUser, "-g", frrUser, "-A", "127.0.0.1", "-P", "0", "--vty_socket", f.dir,
		"-z", filepath.Join(f.dir, "zserv.api"), "-i", filepath.Join(f.dir, name+".pid"),
		"-f", filepath.Join(f.dir, name+".conf"), "--log", "stdout",
	}, more...)
	p, err := f.net.Start(f.Host, name, nil, argv...)
	if err != nil {
		return nil, err
	}
	if err := there(ctx, p, vty); err != nil {
		return nil, err
	}
	// A line that it does not know is only logged.
	if log := p.Tail(1000); strings.Contains(log, "No such command") {
		return nil, fmt.Errorf("frr: %s: %s", name, log)
	}
	return p, nil
}

// Show runs a command of vtysh.
func (f *FRR) Show(ctx context.Context, command string) (string, error) {
	return f.vtysh(ctx, command)
}

// Configure runs lines in configuration mode.
func (f *FRR) Configure(ctx context.Context, lines ...string) error {
	out, err := f.vtysh(ctx, append([]string{"configure terminal"}, lines...)...)
	if err == nil && strings.Contains(out, "% ") {
		err = fmt.Errorf("frr: configure: %s", out)
	}
	return err
}

func (f *FRR) vtysh(ctx context.Context, commands ...string) (string, error) {
	argv := []string{"vtysh", "--vty_socket", f.dir, "--config_dir", f.dir}
	for _, c := range commands {
		argv = append(argv, "-c", c)
	}
	return f.net.Exec(ctx, f.Host, argv...)
}

// StopBGP ends bgpd alone; zebra then removes its routes.
func (f *FRR) StopBGP() error { return end(f.BGP) }

// Stop ends all daemons.
func (f *FRR) Stop() error { return errors.Join(end(f.BGP), end(f.BFD), end(f.Zebra)) }

// Tail returns the last lines of each log.
func (f *FRR) Tail(lines int) string {
	var b strings.Builder
	for _, p := range []*lab.Proc{f.Zebra, f.BGP, f.BFD} {
		if p != nil {
			fmt.Fprintf(&b, "--- %s\n%s\n", p.Name, p.Tail(lines))
		}
	}
	return b.String()
}
