package machines

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/apitest"
)

const (
	resHosts = "infra.example.com/v1/hosts"
	// hostsLB is a balancer of objects that stand for Machines.
	hostsLB = `"spec":{"clusterName":"prod","address":"10.0.0.200","targetKind":{"group":"infra.example.com","version":"v1","kind":"Host",
		"addressesPath":"status.ip","nodeNamePath":"spec.node"}}`
	ofProd = `"metadata":{"labels":{"cluster.x-k8s.io/cluster-name":"prod","cluster.x-k8s.io/control-plane":""}}`
	aHost  = ofProd + `,"spec":{"node":"cp1"},"status":{"ip":"10.0.0.11"}`
)

func servedHosts() map[string]string {
	kinds := served()
	kinds[resHosts] = "Host"
	return kinds
}

// replaced is a Source whose kubeconfig now is that of another management cluster,
// which has been asked for its Machines.
func replaced(t *testing.T, fill func(*apitest.Server)) (b *bed, next *apitest.Server) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(text string) { // whole: half of it would be one more kubeconfig
		err := os.WriteFile(file+".new", []byte(text), 0o600)
		if err = errors.Join(err, os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	b = start(t, served(), func(s *v1alpha1.MachinesSpec) { s.Kubeconfig = file })
	b.api.Put(resBalancers, object("a/api", mlb))
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", ``))
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", `"metadata":{"labels":{"lbd.dev/drain":""}}`))
	b.decide(false)
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 manager")
	next = apitest.New(t, served())
	fill(next)
	b.mu.Lock()
	b.api = next
	b.mu.Unlock()
	write("two")
	eventually(t, "the other one is watched", func() bool {
		watched := ""
		for _, r := range next.Requests() {
			if strings.Contains(r, "watch=") {
				watched += r
			}
		}
		return strings.Contains(watched, "/machines") && strings.Contains(watched, "/machineloadbalancers")
	})
	return b, next
}

// TestEmptyManagementCluster: one that has nothing, and one that is being filled, says
// nothing about the addresses and drains that there are.
func TestEmptyManagementCluster(t *testing.T) {
	t.Parallel()
	b, next := replaced(t, func(*apitest.Server) {})
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 lost")
	time.Sleep(farewell + lookEvery)
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 lost")
	// Others of the cluster come first.
	next.Put(resBalancers, object("a/api", mlb))
	next.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", ``))
	time.Sleep(farewell + lookEvery)
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 lost")
	next.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", ``))
	b.wants("a/api@10.0.0.200 manager")
	// That this node is no Machine any more is news from one that knew it.
	next.Delete(resMachines, "a", "m1")
	b.wants("manager")
}

// TestRestoredEmpty: an API that comes back without the Machines of this cluster, as
// from an old backup, is no news either.
func TestRestoredEmpty(t *testing.T) {
	t.Parallel()
	b := startManaged(t)
	b.api.Stop()
	b.wants("a/api@10.0.0.200 lost")
	b.api.Delete(resMachines, "a", "m1")
	b.api.Delete(resBalancers, "a", "api")
	before := len(b.api.Requests())
	b.api.Start()
	eventually(t, "it is watched again", func() bool {
		again := strings.Join(b.api.Requests()[before:], " ")
		return strings.Contains(again, "/machines?") && strings.Contains(again, "/machineloadbalancers?")
	})
	time.Sleep(farewell + lookEvery)
	b.wants("a/api@10.0.0.200 lost")
}

// TestMovedWithoutStatus: clusterctl makes objects without their status.
func TestMovedWithoutStatus(t *testing.T) {
	t.Parallel()
	b, next := replaced(t, func(s *apitest.Server) {
		s.Put(resBalancers, object("a/api", `"spec":{"clusterName":"prod"}`))
		s.Put(resMachines, object("a/m1", ofProd))
		o := object("a/m2", ofProd)
		merge(o, object("a/m2", `"metadata":{"labels":{"lbd.dev/drain":"","moved":""}}`))
		s.Put(resMachines, o)
	})
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 manager")
	time.Sleep(farewell + lookEvery)
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 manager")
	// What has another address now has that, and who loses it has none.
	next.Put(resBalancers, object("a/api", `"spec":{"clusterName":"prod"},"status":{"address":"10.0.0.201","observedGeneration":1}`))
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.201 manager")
	next.Put(resBalancers, object("a/api", `"spec":{"clusterName":"prod"},"status":{"observedGeneration":1}`))
	b.wants("a/m2(cp2)=Labelled manager")
}

// TestTargetsWithoutMachines: who has no Cluster API has balancers of other objects.
func TestTargetsWithoutMachines(t *testing.T) {
	t.Parallel()
	b := start(t, map[string]string{resBalancers: "MachineLoadBalancer", resHosts: "Host"}, nil)
	b.decide(false)
	b.wants("lost")
	b.api.Put(resHosts, object("a/h1", aHost))
	b.api.Put(resBalancers, object("a/api", hostsLB+`,"status":{"address":"10.0.0.200"}`))
	b.wants("a/api@10.0.0.200 lost")
	b.api.Delete(resHosts, "a", "h1")
	b.wants("lost")
}

// TestTargetsAreWaitedFor: the first news is complete.
func TestTargetsAreWaitedFor(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	release := sync.OnceFunc(func() { close(read) })
	t.Cleanup(release)
	api := apitest.New(t, servedHosts())
	api.Gate(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/hosts") {
			<-read
		}
		return 0
	})
	api.Put(resHosts, object("a/h1", aHost))
	api.Put(resBalancers, object("a/api", hostsLB+`,"status":{"address":"10.0.0.200"}`))
	began := time.Now()
	b := startOn(t, api, nil)
	b.decide(false)
	asked := func() bool {
		for _, r := range b.api.Requests() {
			if strings.Contains(r, "/hosts") {
				return true
			}
		}
		return false
	}
	eventually(t, "the hosts are asked for", asked)
	time.Sleep(2 * lookEvery)
	first, waited := b.told(), time.Since(began)
	release()
	if first != "nothing" && waited < targetWait {
		t.Errorf("before the hosts were read it tells %q", first)
	}
	b.wants("a/api@10.0.0.200 manager")
}

// TestRefused: what refuses to be read is seen, by kind.
func TestRefused(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, served())
	api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", ``))
	api.Gate(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/machineloadbalancers") {
			return http.StatusForbidden
		}
		return 0
	})
	b := startOn(t, api, nil)
	b.decide(false)
	eventually(t, "it says what is refused", func() bool {
		err := b.src.Err()
		return err != nil && strings.Contains(err.Error(), "machineloadbalancers")
	})
	b.api.Gate(nil)
	eventually(t, "it is read", func() bool { return b.src.Err() == nil })
	b.wants("manager")
}
