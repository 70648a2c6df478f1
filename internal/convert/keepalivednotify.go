package convert

import (
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

// hook is a program that a vrrp_instance runs.
type hook struct {
	spec      v1alpha1.NotifySpec
	addresses []string // of the instance, some of which a LoadBalancer may have
}

// hookStates are what lbd calls the states for which keepalived has a script each.
var hookStates = map[string]v1alpha1.NotifyState{
	"notify_master": v1alpha1.NotifyOwner, "notify_backup": v1alpha1.NotifyStandby, "notify_fault": v1alpha1.NotifyFault,
}

// toKeepalived runs the program and arguments that follow it with what keepalived calls the
// state, and the priority, as the last two arguments.
const toKeepalived = `case $LBD_STATE in owner) s=MASTER;; standby) s=BACKUP;; *) s=FAULT;; esac; exec "$@" $s `

// hooks turns the scripts of an instance, whose addresses are known, into programs of notify.
func (k *keepalived) hooks(title string, vip *v1alpha1.VirtualIP, d *directive) {
	const how = "becomes notify of the NodeConfiguration: run by the daemon as its own user, once after the start too, and for each address by itself"
	for i := range d.block {
		x := &d.block[i]
		name := x.words[0]
		if !strings.HasPrefix(name, "notify") {
			continue
		}
		h := hook{addresses: slices.Clone(vip.Spec.Addresses), spec: v1alpha1.NotifySpec{Command: command(x.word(1))}}
		state, one := hookStates[name]
		switch {
		case name == "notify_stop":
			k.note(title, x, "is left out: when the daemon stops, an address that the node has becomes standby, as at other times")
			continue
		case name != "notify" && !one:
			k.note(title, x, "has no equal, and is left out")
			continue
		case len(h.spec.Command) == 0:
			k.note(title, x, "names no program, and is left out")
			continue
		case one:
			h.spec.States = []v1alpha1.NotifyState{state}
			k.keep(title, x, how)
		default:
			if strings.ContainsAny(x.word(1), quotes) { // a shell reads it, and adds what follows
				h.spec.Command[2] += ` "$@"`
				h.spec.Command = append(h.spec.Command, "sh")
			}
			priority := "100"
			if p := d.value("priority"); p != "" && strings.Trim(p, "0123456789") == "" {
				priority = p
			}
			h.spec.Command = slices.Concat([]string{"/bin/sh", "-c", toKeepalived + priority, "sh"}, h.spec.Command, []string{"INSTANCE", d.word(1)})
			k.keep(title, x, how+". A shell gives it the arguments of keepalived; the environment tells more")
		}
		k.notify = append(k.notify, h)
	}
}

// notified says which objects have the addresses of the instances.
func (k *keepalived) notified() {
	owners := make(map[string]string)
	for _, o := range k.out.Objects {
		switch o := o.(type) {
		case *v1alpha1.VirtualIP:
			for _, a := range o.Spec.Addresses {
				owners[a] = o.Metadata.Name
			}
		case *v1alpha1.LoadBalancer:
			for _, a := range o.Spec.Addresses {
				owners[a] = o.Metadata.Name
			}
		}
	}
	for _, h := range k.notify {
		for _, a := range h.addresses {
			if name := owners[a]; name != "" && !slices.Contains(h.spec.VirtualIPs, name) {
				h.spec.VirtualIPs = append(h.spec.VirtualIPs, name)
			}
		}
		if len(h.spec.VirtualIPs) > 0 {
			k.node.Notify = append(k.node.Notify, h.spec)
		}
	}
}

// quotes are what keepalived reads in the text of a command beside words.
const quotes = `'"\`

// command is that of a script, for which a shell is needed if the text has quotes.
func command(text string) []string {
	if strings.ContainsAny(text, quotes) {
		return []string{"/bin/sh", "-c", text}
	}
	return strings.Fields(text)
}
