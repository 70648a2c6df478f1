package page

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// The version of axe-core that judges, and the SHA-256 of its package.
const (
	axeVersion = "4.10.3"
	axeSum     = "0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292"
)

// axe returns the script of axe-core. npm fetches its package once into the folder lbd/page in
// LBD_CACHE or the user's cache.
func axe(ctx context.Context) (string, error) {
	cache := os.Getenv("LBD_CACHE")
	if cache == "" {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("no folder for the cache, set LBD_CACHE: %w", err)
		}
	}
	dir := filepath.Join(cache, "lbd", "page")
	path := filepath.Join(dir, "axe-core-"+axeVersion+".tgz")
	packed, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err = fetch(ctx, dir); err == nil {
			packed, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != axeSum {
		return "", fmt.Errorf("%s is not what was fetched when the test was written: remove it", path)
	}
	return unpack(packed, "package/axe.min.js")
}

// fetch has npm get the package into a folder.
func fetch(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", "--ignore-scripts", "axe-core@"+axeVersion)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("axe-core: npm pack: %w\n%s", err, out)
	}
	return nil
}

// unpack returns a file of a package.
func unpack(packed []byte, name string) (string, error) {
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(plain); ; {
		head, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if head.Name == name {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}

// shrink makes a picture small: it keeps the colours that are used most, and puts the nearest
// of them in the place of others, which are at the edges of letters.
func shrink(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	at, count := from.Bounds(), map[color.Color]int{}
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			count[from.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int {
		return cmp.Or(count[b]-count[a], strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	to := image.NewPaletted(at, colours[:min(len(colours), 64)])
	draw.Draw(to, at, from, at.Min, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}

// awaited has Evaluate wait for a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// requests are what a tab asked for, and what went wrong in it.
type requests struct {
	mu     sync.Mutex
	urls   []string
	errors []string
}

func watchRequests(ctx context.Context) *requests {
	var seen requests
	chromedp.ListenTarget(ctx, func(event any) {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			seen.urls = append(seen.urls, e.Request.URL)
		case *log.EventEntryAdded:
			seen.errors = append(seen.errors, e.Entry.Text)
		case *runtime.EventExceptionThrown:
			seen.errors = append(seen.errors, e.ExceptionDetails.Error())
		}
	})
	return &seen
}
