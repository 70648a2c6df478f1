package config

import (
	"strings"
	"testing"
)

// TestQuorumOfTwo: a majority of two nodes is none when one of them dies, which is warned about.
func TestQuorumOfTwo(t *testing.T) {
	const words = "of two nodes only both are a majority"
	for _, c := range []struct {
		gossip, rest string
		want         bool
	}{
		{"peers: [10.0.0.11, 10.0.0.12]", "", true},
		{"peers: [10.0.0.11, 10.0.0.12], bindAddress: 10.0.0.11", "", true},
		{"peers: [10.0.0.12], bindAddress: 10.0.0.11", "", true},
		{"peers: [10.0.0.12, 10.0.0.13], bindAddress: 10.0.0.11", "", false},
		{"peers: [10.0.0.11, 10.0.0.12, 10.0.0.13]", "", false},
		{"peers: [10.0.0.11], bindAddress: 10.0.0.11", "", false},
		{"peers: [10.0.0.11, 10.0.0.12]", "kubernetes: {}\n", false}, // Nodes are peers, too
	} {
		for _, partition := range []string{"quorum", "available"} {
			for _, object := range []string{
				headVIP + "metadata: {name: a}\nspec:\n  addresses: [10.0.0.200]\n",
				goodBalancer,
			} {
				object = strings.Replace(object, "spec:\n", "spec:\n  partition: "+partition+"\n", 1)
				text := headNode + "nodeName: m1\ngossip: {insecure: true, " + c.gossip + "}\n" + c.rest + "---\n" + object
				cfg, err := Load(write(t, map[string]string{"a.yaml": text}))
				if err != nil {
					t.Fatal(err, text)
				}
				got := strings.Contains(strings.Join(cfg.Warnings, "\n"), words)
				if got != (c.want && partition == "quorum") {
					t.Errorf("%s %s%s: warned %v", c.gossip, c.rest, partition, got)
				}
			}
		}
	}
}
