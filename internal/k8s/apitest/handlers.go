package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// target is what a URL names.
type target struct{ resource, namespace, name, sub string }

// has tells whether the object with this key is in the namespace that is asked for.
func (t *target) has(key string) bool {
	return t.namespace == "" || strings.HasPrefix(key, t.namespace+"/")
}

func parse(path string) (target, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var t target
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		t.resource, parts = parts[1]+"/", parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		t.resource, parts = parts[1]+"/"+parts[2]+"/", parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource += parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.sub = parts[2]
	}
	return t, true
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := parse(r.URL.Path)
	s.mu.Lock()
	s.log = append(s.log, r.Method+" "+r.URL.String())
	kind, served := s.kinds[t.resource]
	failing, gate := s.failing, s.gate
	s.mu.Unlock()
	if gate != nil && failing == 0 {
		failing = gate(r)
	}
	switch {
	case failing != 0:
		status(w, failing, "on request of the test")
	case !ok && s.discovery(w, r.URL.Path):
	case !ok || !served:
		status(w, http.StatusNotFound, "the server could not find the requested resource")
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") == "true":
		s.watch(w, r, t, kind)
	case r.Method == http.MethodGet && t.name != "":
		s.get(w, t)
	case r.Method == http.MethodGet:
		s.list(w, t, kind)
	case r.Method == http.MethodPatch:
		s.patch(w, r, t)
	case r.Method == http.MethodPost, r.Method == http.MethodPut:
		s.write(w, r, t)
	case r.Method == http.MethodDelete && t.name != "":
		s.remove(w, r, t)
	default:
		status(w, http.StatusMethodNotAllowed, r.Method)
	}
}

// discovery answers which groups there are, or which resources a version of one has.
func (s *Server) discovery(w http.ResponseWriter, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := strings.TrimPrefix(strings.TrimPrefix(strings.Trim(path, "/"), "apis"), "api")
	wanted = strings.Trim(wanted, "/")
	versions, resources := map[string][]any{}, []any{}
	for res := range s.kinds {
		gv, name, _ := cutLast(res)
		group, version, _ := strings.Cut(gv, "/")
		versions[group] = append(versions[group], map[string]any{"groupVersion": gv, "version": version})
		if gv == wanted {
			resources = append(resources, map[string]any{"name": name, "kind": s.kinds[res]})
		}
	}
	if wanted == "" {
		groups := []any{}
		for name, v := range versions {
			groups = append(groups, map[string]any{"name": name, "versions": v})
		}
		answer(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
		return true
	}
	if wanted == "v1" || len(resources) > 0 {
		answer(w, http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": wanted, "resources": resources})
		return true
	}
	return false
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

func status(w http.ResponseWriter, code int, text string) {
	reasons := map[int]string{409: "Conflict", 404: "NotFound", 403: "Forbidden", 401: "Unauthorized", 410: "Expired", 400: "BadRequest", 422: "Invalid"}
	answer(w, code, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
		"reason": reasons[code], "message": text})
}

func (s *Server) get(w http.ResponseWriter, t target) {
	if o := s.Get(t.resource, t.namespace, t.name); o != nil {
		answer(w, http.StatusOK, o)
		return
	}
	status(w, http.StatusNotFound, t.name+" not found")
}

func (s *Server) list(w http.ResponseWriter, t target, kind string) {
	s.mu.Lock()
	items := []map[string]any{}
	objects := s.of(t.resource).objects
	for _, k := range slices.Sorted(maps.Keys(objects)) {
		if t.has(k) {
			items = append(items, objects[k])
		}
	}
	api, _, _ := cutLast(t.resource)
	data, err := json.Marshal(map[string]any{"apiVersion": api, "kind": kind + "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.rv)}, "items": items})
	s.mu.Unlock()
	if err != nil {
		status(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, kind string) {
	flush, _ := w.(http.Flusher)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	s.mu.Lock()
	seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		api, _, _ := cutLast(t.resource)
		for k, o := range s.of(t.resource).objects {
			if t.has(k) {
				data, _ := json.Marshal(o)
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", data)
			}
		}
		seen = s.rv
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n",
			api, kind, seen)
	}
	s.mu.Unlock()
	flush.Flush()
	for {
		s.mu.Lock()
		res := s.of(t.resource)
		for _, e := range res.events {
			if e.rv > seen && t.has(e.key) {
				fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", e.kind, e.obj)
			}
			seen = max(seen, e.rv)
		}
		news := res.news
		s.mu.Unlock()
		flush.Flush()
		select {
		case <-r.Context().Done():
			return
		case <-news:
		}
	}
}

// remove deletes an object. A UID that the request names must be that of the object.
func (s *Server) remove(w http.ResponseWriter, r *http.Request, t target) {
	var o struct {
		Preconditions struct {
			UID *string `json:"uid"`
		} `json:"preconditions"`
	}
	_ = json.NewDecoder(r.Body).Decode(&o) // there need not be one
	old := s.Get(t.resource, t.namespace, t.name)
	if old == nil {
		status(w, http.StatusNotFound, t.name+" not found")
		return
	}
	if uid := o.Preconditions.UID; uid != nil && *uid != old["metadata"].(map[string]any)["uid"] {
		status(w, http.StatusConflict, t.name+" is another one")
		return
	}
	s.Delete(t.resource, t.namespace, t.name)
	answer(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"})
}

// write creates or replaces an object. A resourceVersion must be that of the object.
func (s *Server) write(w http.ResponseWriter, r *http.Request, t target) {
	var o map[string]any
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		status(w, http.StatusBadRequest, err.Error())
		return
	}
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil || meta["name"] == nil {
		status(w, http.StatusUnprocessableEntity, "no name")
		return
	}
	t.name = meta["name"].(string)
	s.mu.Lock()
	old := s.of(t.resource).objects[keyOf(meta)]
	code := 0
	switch {
	case r.Method == http.MethodPost && old != nil:
		code = http.StatusConflict
	case r.Method == http.MethodPut && old == nil:
		code = http.StatusNotFound
	case r.Method == http.MethodPut && !fits(meta, old):
		code = http.StatusConflict
	default:
		if r.Method == http.MethodPost && meta["uid"] == nil {
			meta["uid"] = fmt.Sprintf("uid-%d", s.rv)
		}
		s.put(t.resource, o)
	}
	s.mu.Unlock()
	if code == http.StatusConflict && r.Method == http.MethodPost {
		answer(w, code, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": "AlreadyExists", "message": t.name + " already exists"})
		return
	}
	if code != 0 {
		status(w, code, r.Method+" "+t.name)
		return
	}
	s.get(w, t)
}

// fits tells whether the version and UID that a writer names are those of the object.
func fits(meta, old map[string]any) bool {
	have, _ := old["metadata"].(map[string]any)
	for _, field := range []string{"resourceVersion", "uid"} {
		if want, ok := meta[field]; ok && want != have[field] {
			return false
		}
	}
	return true
}

// mergePatch carries out RFC 7396.
func mergePatch(o, p map[string]any) {
	for k, v := range p {
		sub, isMap := v.(map[string]any)
		switch {
		case v == nil:
			delete(o, k)
		case isMap:
			in, ok := o[k].(map[string]any)
			if !ok {
				in = map[string]any{}
			}
			mergePatch(in, sub)
			o[k] = in
		default:
			o[k] = v
		}
	}
}

// mergeConditions makes of the conditions in a strategic merge patch the list that is to be there: each
// takes the place of the one with its type, or removes it.
func mergeConditions(o, p map[string]any) {
	status, _ := p["status"].(map[string]any)
	change, ok := status["conditions"].([]any)
	if !ok {
		return
	}
	have, _ := o["status"].(map[string]any)
	list, _ := have["conditions"].([]any)
	for _, c := range change {
		c := c.(map[string]any)
		list = slices.DeleteFunc(slices.Clone(list), func(x any) bool { return x.(map[string]any)["type"] == c["type"] })
		if c["$patch"] != "delete" {
			list = append(list, c)
		}
	}
	status["conditions"] = list
}

// patch carries out a merge patch, and a strategic one of conditions; of others it merges the top level and, of an apply,
// replaces the status, labels and annotations. An apply makes an object that is not there.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target) {
	data, err := io.ReadAll(r.Body)
	var p map[string]any
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	o := s.Get(t.resource, t.namespace, t.name)
	apply := r.Header.Get("Content-Type") == "application/apply-patch+yaml"
	switch {
	case err != nil:
		status(w, http.StatusBadRequest, err.Error())
		return
	case o == nil && apply && t.sub == "": // an apply makes what is not there
		o = map[string]any{"metadata": p["metadata"]}
		if meta, _ := p["metadata"].(map[string]any); meta != nil && meta["uid"] == nil {
			meta["uid"] = "uid-" + t.name
		}
	case o == nil:
		status(w, http.StatusNotFound, t.name+" not found")
		return
	}
	s.mu.Lock()
	if kind := r.Header.Get("Content-Type"); kind == "application/merge-patch+json" || kind == "application/strategic-merge-patch+json" {
		meta, _ := p["metadata"].(map[string]any)
		o = s.of(t.resource).objects[t.namespace+"/"+t.name]
		if o == nil || !fits(meta, o) {
			s.mu.Unlock()
			status(w, http.StatusConflict, t.name+" has changed")
			return
		}
		o = clone(o)
		if kind != "application/merge-patch+json" {
			mergeConditions(o, p)
		}
		mergePatch(o, p)
	} else {
		for k, v := range p {
			if k != "metadata" {
				o[k] = v
			}
		}
		if meta, _ := p["metadata"].(map[string]any); apply && t.sub == "" {
			for _, k := range []string{"labels", "annotations"} {
				o["metadata"].(map[string]any)[k] = meta[k]
			}
		}
	}
	s.put(t.resource, o)
	s.mu.Unlock()
	s.get(w, t)
}
