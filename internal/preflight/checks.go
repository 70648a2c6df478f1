package preflight

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/internal/fileaccess"
	"lbd.dev/lbd/internal/forward"
	"lbd.dev/lbd/internal/link"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/relay"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/sockdiag"
)

// rings returns what tells of a VIP whether open connections to it would survive its
// moves, as far as this node can tell: others have their own say.
func (p *preflight) rings(links map[string]model.Link) func(v *model.VIP, iface string) {
	if why := sockdiag.Undestroyable(); why != "" {
		p.say(warn, "connections", "clients on this node do not come back at once when a VIP moves: their connections cannot be cut: %s", why)
	}
	if p.cfg.Node.NoRelay {
		if p.cfg.Node.ServiceConnections == model.ServicesKeep {
			p.say(warn, servicesPart, "`serviceConnections: keep` does nothing: `connections: reset`")
		}
		return func(v *model.VIP, _ string) {
			p.say(ok, v.Addr.String(), "open connections are reset when it moves: `connections: reset`")
		}
	}
	seen, err := relay.Look()
	if err != nil {
		p.say(warn, "connections", "not all that they need could be looked at: %v", err)
	}
	if seen != nil && p.hasServices() {
		seen.Untold = relay.Untold()
		p.services(seen, links, relay.Untrackable)
	}
	return func(v *model.VIP, iface string) {
		if why := ring.Unfit(seen, links, iface, v.Addr); why != "" {
			p.say(warn, v.Addr.String(), "a move resets open connections: %s", why)
			return
		}
		if v.Balanced && v.L2 {
			if why := relay.Unspreadable(v.Addr); why != "" {
				p.say(warn, v.Addr.String(), "as the owner this node takes all new connections itself: the kernel cannot spread them (CONFIG_NFT_HASH): %s", why)
			}
		}
		p.say(ok, v.Addr.String(), "nothing here keeps open connections from surviving a move")
	}
}

// forwards tells which switches of the kernel the VIP of a LoadBalancer lacks.
func (p *preflight) forwards(v *model.VIP, iface string) {
	unset := forward.Unset(v.Addr, iface)
	for _, s := range unset {
		how := warn
		if s.Required {
			how = fail
		}
		p.say(how, v.Addr.String(), "%s; set %s=%s", s.Without, s.Name, s.Want)
	}
	if len(unset) == 0 {
		p.say(ok, v.Addr.String(), "the switches of the kernel let it be forwarded")
	}
	p.firewall(v, iface)
	for i := range p.cfg.LoadBalancers {
		if lb := &p.cfg.LoadBalancers[i]; lb.ClientSource && slices.Contains(lb.VIPs, v.Addr) {
			p.clientSource(v, iface, lb, link.Toward, effective)
		}
	}
}

// clientSource tells what servers need that see the addresses of clients, and what keeps this
// node from sending on what they say. toward and effective are link.Toward, and the function
// here.
func (p *preflight) clientSource(v *model.VIP, iface string, lb *model.LoadBalancer, toward func(netip.Addr) (string, error), effective func(name, iface string) int) {
	p.say(ok, v.Addr.String(), "backends see the addresses of clients: they need an address of %s as their gateway", lb.Name)
	if !v.Addr.Is4() || effective("rp_filter", iface) != 1 {
		return
	}
	for _, s := range lb.Servers {
		if !s.Addr.Is4() {
			continue
		}
		if out, err := toward(s.Addr); err == nil && out != iface {
			p.say(warn, v.Addr.String(), "a move resets open connections to %s: rp_filter is 1 on %s, and it is reached by %s; set net.ipv4.conf.%s.rp_filter=2", s.Addr, iface, out, strings.ReplaceAll(iface, ".", "/"))
			return
		}
	}
}

// firewall tells whether a firewall of this host drops what is forwarded to the backends of a
// LoadBalancer. Of many backends it looks at the first ones of the family.
func (p *preflight) firewall(v *model.VIP, iface string) {
	for i := range p.cfg.LoadBalancers {
		lb := &p.cfg.LoadBalancers[i]
		if !slices.Contains(lb.VIPs, v.Addr) {
			continue
		}
		tried := 0
		for _, s := range lb.Servers {
			if s.Addr.Is4() != v.Addr.Is4() || tried == mostServersTried {
				continue
			}
			tried++
			chain := ""
			out, err := link.Toward(s.Addr)
			if err == nil {
				chain, err = forward.Dropped(iface, out, s.Addr, lb.Ports[0].Protocol)
			}
			switch {
			case err != nil:
				p.say(warn, v.Addr.String(), "whether a firewall drops what is forwarded to %s is not known: %v", s.Addr, err)
			case chain != "":
				p.say(fail, v.Addr.String(), "connections time out: %s drops what is forwarded to %s; let it accept what comes in by %s for the backends, and the answers (ct state established)", chain, s.Addr, iface)
				return
			}
		}
	}
}

// mostServersTried bounds how many backends of one family are looked at.
const mostServersTried = 16

const servicesPart = "Services"

// hasServices tells whether this node is to keep connections to Services if it can. Without a
// cluster there are none.
func (p *preflight) hasServices() bool {
	n := &p.cfg.Node
	return n.ServiceConnections == model.ServicesKeep || n.ServiceConnections == model.ServicesAuto && n.Kubernetes != nil
}

// services tells whether open connections through Services would survive moves of their
// addresses, which the files do not have. That they would not is fine unless somebody asked for
// it. untrackable is that of package relay.
func (p *preflight) services(seen *model.RingHost, links map[string]model.Link, untrackable func(netip.Addr) string) {
	why, how := ring.ServiceUnfit(seen, links), ok
	if p.cfg.Node.ServiceConnections == model.ServicesKeep {
		how = warn
	}
	for i, a := range [...]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		family := [...]string{"IPv4", "IPv6"}[i]
		kernel, chain := seen.Kernel.Of(a), seen.Drops.Of(a)
		if kernel == "" {
			if kernel = untrackable(a); kernel != "" {
				kernel += " (CONFIG_NFT_CT)"
			}
		}
		switch {
		case kernel != "":
			p.say(how, servicesPart, "a move resets open connections: the kernel has no such rules for %s: %s", family, kernel)
		case why != "":
			p.say(how, servicesPart, "a move resets open connections: %s", why)
			return // it is the same for both
		case chain != "":
			p.say(how, servicesPart, "a move resets open connections: %s drops what is relayed of %s; let it accept `ct state untracked`", chain, family)
		default:
			p.say(ok, servicesPart, "nothing here keeps open connections by %s from surviving a move", family)
		}
	}
}

// reader is a way to run the daemon, and as whom it then reads files.
type reader struct {
	what string
	user fileaccess.User
	here bool // it is installed on this host
}

// readers are the static pod and the unit. Preflight itself runs as root and reads
// everything, so it judges by owner and mode for those who will read.
func readers(root string) []reader {
	all := []reader{{what: "the static pod", user: fileaccess.Root, here: staticPodIn(filepath.Join(root, "etc/kubernetes/manifests"))}}
	if u, ok := fileaccess.Lookup("lbd"); ok {
		all = append(all, reader{what: "the unit", user: u, here: unitIn(root)})
	}
	return all
}

// unitIn tells whether a unit is where `lbd manifest systemd` or a package puts it.
func unitIn(root string) bool {
	return slices.ContainsFunc([]string{"etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}, func(dir string) bool {
		_, err := os.Stat(filepath.Join(root, dir, "lbd.service"))
		return err == nil
	})
}

// staticPodIn tells whether kubelet finds a pod of lbd in the directory.
func staticPodIn(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	for _, file := range files {
		var pod struct {
			Metadata struct{ Labels map[string]string }
		}
		data, err := os.ReadFile(file)
		if err == nil && yaml.Unmarshal(data, &pod) == nil && pod.Metadata.Labels["app.kubernetes.io/name"] == "lbd" {
			return true
		}
	}
	return false
}

// files tells whether the daemon can read the keyring, the kubeconfigs and the files
// with passwords. What is installed must be able to. If nothing is yet, who could not
// is worth a line.
func (p *preflight) files(all []reader) {
	installed := false
	for _, r := range all {
		installed = installed || r.here
	}
	for _, file := range p.cfg.SecretFiles() {
		if _, err := os.Stat(file); err != nil {
			p.say(warn, "file", "%v", err) // of a kubeconfig, which may come later
			continue
		}
		for _, r := range all {
			switch err := r.user.Read(file); {
			case installed && !r.here:
			case err == nil && installed:
				p.say(ok, "file", "%s can read %s", r.what, file)
			case err != nil && installed:
				p.say(fail, "file", "%s cannot read %s: %v", r.what, file, err)
			case err != nil:
				p.say(warn, "file", "%s could not read %s: %v", r.what, file, err)
			}
		}
	}
}
