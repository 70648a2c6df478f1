// Package page looks at the daemon's page with a browser: headless Chromium shows it, axe-core
// judges it. It is a module of its own, so that lbd does not depend on what drives a browser.
package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/page"
	"lbd.dev/lbd/internal/testnet"
)

var update = flag.Bool("update", false, "write the screenshots of docs")

const folder = "../../internal/page/testdata"

// daemon is one of values, in which much is wrong at once.
type daemon struct {
	mu     sync.Mutex
	status v1alpha1.NodeStatus
	events v1alpha1.NodeEvents
	list   []v1alpha1.Explanation
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	var d daemon
	for name, into := range map[string]any{"status": &d.status, "events": &d.events, "explain": &d.list} {
		text, err := os.ReadFile(filepath.Join(folder, name+".json"))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return &d
}

func (d *daemon) Status(context.Context) (v1alpha1.NodeStatus, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status, nil
}

func (d *daemon) Explain(_ context.Context, vip, _ string) (out []v1alpha1.Explanation, err error) {
	for _, e := range d.list {
		if e.Name == vip || e.Address == vip {
			out = append(out, e)
		}
	}
	return out, nil
}

func (d *daemon) Events(context.Context, string, time.Duration, uint64) (v1alpha1.NodeEvents, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events, nil
}

// moves gives an address to another node.
func (d *daemon) moves(address, to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.VIPs = append([]v1alpha1.VIPStatus(nil), d.status.VIPs...)
	for i := range d.status.VIPs {
		v := &d.status.VIPs[i]
		if v.Address != address {
			continue
		}
		d.events.Newest++
		d.events.Events = append(append([]v1alpha1.Event(nil), d.events.Events...), v1alpha1.Event{
			Seq: d.events.Newest, Time: d.status.Time, Kind: v1alpha1.EventOwner, VIP: v.Name, Address: v.Address, Mode: v.Mode, Node: to, From: v.Owner, To: to, Reason: "Draining",
		})
		v.Owner = to
	}
}

// browser is the first of the programs that this computer has.
func browser() (string, error) {
	for _, name := range []string{"chromium-headless-shell", "chromium-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium: `make page` installs Debian's package chromium-headless-shell")
}

// show serves the page and returns a tab of a browser.
func show(t *testing.T) (context.Context, *daemon, *httptest.Server) {
	t.Helper()
	program, err := browser()
	testnet.Require(t, err)
	d := newDaemon(t)
	p := page.New(slog.New(slog.DiscardHandler), d)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	t.Cleanup(p.Close)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("font-render-hinting", "none"))
	// Not the context of the test, which ends before the browser is told to.
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	t.Cleanup(func() { // waits until it has ended, with all of its processes
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("%s does not end: %v", program, err)
		}
	})
	return ctx, d, server
}

func do(t *testing.T, ctx context.Context, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// value is what an expression says in the page.
func value[T any](t *testing.T, ctx context.Context, expression string) (out T) {
	t.Helper()
	do(t, ctx, chromedp.Evaluate(expression, &out))
	return out
}

// soon waits until an expression is true.
func soon(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	if err := chromedp.Run(ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(30*time.Second))); err != nil {
		t.Fatalf("%s: %v; the page says %q", expression, err, value[string](t, ctx, `document.getElementById("live").textContent`))
	}
}

// scheme is light or dark.
func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}})
}

// TestLive: a change appears by itself, is said to those who do not see, and takes neither the
// focus nor what was opened.
func TestLive(t *testing.T) {
	ctx, d, server := show(t)
	do(t, ctx, chromedp.EmulateViewport(1200, 900), chromedp.Navigate(server.URL+"/"))
	soon(t, ctx, `document.getElementById("live").textContent.startsWith("Live.")`)
	do(t, ctx, chromedp.Evaluate(`document.querySelector("#vips a[href='/vip/10.0.0.220']").focus(); document.querySelector("#older").open = true`, nil))
	d.moves("10.0.0.220", "m3")
	soon(t, ctx, `document.querySelector("#vips a[href='/vip/10.0.0.220']").closest("tr").cells[1].textContent.includes("m3")`)
	soon(t, ctx, `document.getElementById("live").textContent.includes("ingress/web: m1 → m3")`)
	if got := value[string](t, ctx, `document.activeElement.getAttribute("href")`); got != "/vip/10.0.0.220" {
		t.Errorf("the focus is on %q", got)
	}
	if !value[bool](t, ctx, `document.querySelector("#older").open && document.querySelector("#changes tbody tr").classList.contains("fresh")`) {
		t.Error("what was opened is closed, or the new row is not to be seen")
	}
	server.CloseClientConnections()
	soon(t, ctx, `document.getElementById("live").textContent.startsWith("Not live since")`)
	soon(t, ctx, `document.getElementById("live").textContent.startsWith("Live.")`)
}

// TestPolicy: the browser finds nothing on the pages that the policy forbids, loads nothing from
// elsewhere, and has no error to tell of.
func TestPolicy(t *testing.T) {
	ctx, _, server := show(t)
	seen := watchRequests(ctx)
	for _, path := range []string{"/", "/vip/10.0.0.200", "/vip/registry", "/?all"} {
		do(t, ctx, chromedp.Navigate(server.URL+path))
		soon(t, ctx, `document.getElementById("live").textContent.startsWith("Live.")`)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, url := range seen.urls {
		if !strings.HasPrefix(url, server.URL+"/") {
			t.Errorf("the page asked for %s", url)
		}
	}
	if len(seen.urls) < 12 {
		t.Errorf("only %v were seen: the test is blind", seen.urls)
	}
	for _, line := range seen.errors {
		t.Errorf("the browser says %s", line)
	}
}

// TestWithoutScript: the page is whole without JavaScript.
func TestWithoutScript(t *testing.T) {
	ctx, _, server := show(t)
	do(t, ctx, emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(server.URL+"/"))
	var text string
	do(t, ctx, chromedp.Text("body", &text, chromedp.ByQuery))
	for _, want := range []string{"As of 07:30:12 UTC", "10.0.0.200", "every healthy node", "tor-b", "10.0.1.33:5000", "missed for 204ms"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

// TestNarrow: a phone shows everything in its width, and no letter too small.
func TestNarrow(t *testing.T) {
	ctx, _, server := show(t)
	for _, path := range []string{"/", "/vip/registry", "/?all"} {
		do(t, ctx, chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), chromedp.Navigate(server.URL+path))
		if got := value[float64](t, ctx, `document.documentElement.scrollWidth`); got > 360 {
			t.Errorf("%s is %v wide: %s", path, got, value[string](t, ctx, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 361).map(e => e.outerHTML.slice(0, 90)).slice(-3).join("\n")`))
		}
		if got := value[float64](t, ctx, `Math.min(...[...document.querySelectorAll("body *")].filter(e => e.textContent.trim()).map(e => parseFloat(getComputedStyle(e).fontSize)))`); got < 12 {
			t.Errorf("%s has letters of %v pixels", path, got)
		}
	}
}

// TestKeyboard: the first key leads to the way past the bar, and focus is seen everywhere.
func TestKeyboard(t *testing.T) {
	ctx, _, server := show(t)
	do(t, ctx, chromedp.Navigate(server.URL+"/"), chromedp.KeyEvent("\t"))
	if got := value[string](t, ctx, `document.activeElement.className + " " + (document.activeElement.getBoundingClientRect().left >= 0)`); got != "skip true" {
		t.Errorf("first is %q", got)
	}
	do(t, ctx, chromedp.KeyEvent("\r"))
	if got := value[string](t, ctx, `location.hash`); got != "#main" {
		t.Errorf("it leads to %q", got)
	}
	for range 8 {
		do(t, ctx, chromedp.KeyEvent("\t"))
		if got := value[string](t, ctx, `getComputedStyle(document.activeElement).outlineStyle + " " + document.activeElement.localName`); got != "solid a" {
			t.Errorf("the focus is %q", got)
		}
	}
}

// TestAccessible has axe-core judge each page in both schemes and widths.
func TestAccessible(t *testing.T) {
	ctx, _, server := show(t)
	script, err := axe(t.Context())
	testnet.Require(t, err)
	for _, width := range []int64{1200, 360} {
		for _, colours := range []string{"light", "dark"} {
			for _, path := range []string{"/", "/vip/10.0.0.200", "/vip/registry"} {
				do(t, ctx, chromedp.EmulateViewport(width, 900), scheme(colours), chromedp.Navigate(server.URL+path), chromedp.Evaluate(script, nil))
				found := struct {
					Violations []struct {
						ID, Help string
						Nodes    []struct{ HTML, FailureSummary string }
					}
					Passes []struct{ ID string }
				}{}
				do(t, ctx, chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]})`, &found, chromedp.EvalAsValue, awaited))
				for _, v := range found.Violations {
					t.Errorf("%s, %s, %d wide: %s: %s: %+.600v", path, colours, width, v.ID, v.Help, v.Nodes)
				}
				if len(found.Passes) < 15 {
					t.Errorf("%s: only %d rules were looked at", path, len(found.Passes))
				}
			}
		}
	}
}

// TestScreenshots makes the pictures of docs with -update, and holds them to a size.
func TestScreenshots(t *testing.T) {
	const most = 150 << 10
	shots := []struct {
		file, path, colours string
		width, height       int64
	}{
		{"page-light.png", "/", "light", 1200, 1500}, {"page-dark.png", "/", "dark", 1200, 1500},
		{"page-vip.png", "/vip/10.0.0.200", "light", 1200, 820}, {"page-phone.png", "/", "dark", 390, 844},
	}
	ctx, _, server := show(t)
	for _, s := range shots {
		path := filepath.Join("..", "..", "docs", s.file)
		var picture []byte
		do(t, ctx, chromedp.EmulateViewport(s.width, s.height), scheme(s.colours), chromedp.Navigate(server.URL+s.path))
		soon(t, ctx, `document.getElementById("live").textContent.startsWith("Live.")`)
		do(t, ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
			picture, err = cdppage.CaptureScreenshot().WithFormat(cdppage.CaptureScreenshotFormatPng).Do(ctx)
			return err
		}))
		if *update {
			small, err := shrink(picture)
			if err == nil {
				err = os.WriteFile(path, small, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		kept, err := os.ReadFile(path)
		if err != nil || len(kept) > most || !bytes.HasPrefix(kept, []byte("\x89PNG")) {
			t.Errorf("%s: %d bytes, %v; go test -run Screenshots -update makes it", path, len(kept), err)
		}
		if len(picture) < 20<<10 {
			t.Errorf("%s would be %d bytes: it shows nothing", path, len(picture))
		}
		fmt.Fprintln(t.Output(), path, len(kept), "bytes")
	}
}
