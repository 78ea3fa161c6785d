// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/spokelet/spokelet"

// An arrow says what the packages in one folder may import.
type arrow struct {
	reason string
	// ours lists the folders of this module that may be imported.
	ours []string
	// onlyStandard refuses every import from outside the standard library.
	onlyStandard bool
	// never lists paths that may not be imported, with all below them.
	never []string
	// testsToo holds the tests to the same rule.
	testsToo bool
}

// rigs is the folder that tests of every side may import, and nothing else.
const rigs = "internal/testing"

// arrows point down. The longest folder that a package is in decides.
var arrows = map[string]arrow{
	"api": {
		reason: "api is what both sides and other people's programs share",
		ours:   []string{"api"}, testsToo: true,
	},
	"internal": {
		reason: "hub and agent share it, so it knows neither of them",
		ours:   []string{"internal", "tunnel/identity", "api"}, testsToo: true,
	},
	"internal/impersonation": {
		reason: "who a request is for is decided by code that can be read in one sitting",
		ours:   []string{"internal/impersonation"}, onlyStandard: true,
	},
	"internal/quota": {
		reason: "every package of the hub may count by it, so it knows none of them",
		ours:   []string{"internal/quota"}, onlyStandard: true,
	},
	"internal/clustername": {
		reason: "the hub and the plugin refuse the same names",
		ours:   []string{"internal/clustername", "tunnel/identity"}, onlyStandard: true,
	},
	"internal/connlimit": {
		reason: "the connections of every server are bounded in one way, whatever it serves",
		ours:   []string{"internal/connlimit", "internal/quota"},
		never:  []string{"k8s.io", "sigs.k8s.io", "open-cluster-management.io"},
	},
	"internal/jsonstream": {
		reason: "every package that reads what a peer writes may read by it, so it knows none of them",
		ours:   []string{"internal/jsonstream"}, onlyStandard: true,
	},
	rigs: {
		reason: "rigs of tests know the package that they are a rig for",
		ours:   []string{rigs, "tunnel", "internal", "api"}, testsToo: true,
	},
	"tunnel": {
		reason: "the tunnel carries Kubernetes traffic and knows nothing of Kubernetes",
		ours:   []string{"tunnel", "internal", "api"},
		never:  []string{"k8s.io/client-go", "k8s.io/api", "sigs.k8s.io/controller-runtime", "open-cluster-management.io"},
	},
	"tunnel/identity": {
		reason: "the only parser of certificate names depends on nobody",
		ours:   []string{"tunnel/identity"}, onlyStandard: true,
	},
	"provider": {
		reason: "a virtual node needs the tunnel, and nothing else of the hub",
		ours:   []string{"provider", "tunnel", "internal", "api"}, testsToo: true,
	},
	"hub": {
		reason: "hub and agent meet in tunnel, internal and api alone",
		ours:   []string{"hub", "provider", "tunnel", "internal", "api"}, testsToo: true,
	},
	"agent": {
		reason: "hub and agent meet in tunnel, internal and api alone",
		ours:   []string{"agent", "tunnel", "internal", "api"}, testsToo: true,
	},
	"agent/helm/message": {
		reason:       "the agent and the process of helm share what they say to each other, and no library",
		onlyStandard: true,
	},
	"cmd/spokelet-hub": {
		reason: "a binary holds one side",
		ours:   []string{"cmd/spokelet-hub", "hub", "provider", "tunnel", "internal", "api"}, testsToo: true,
	},
	"cmd/spokelet-agent": {
		reason: "a binary holds one side",
		ours:   []string{"cmd/spokelet-agent", "agent", "tunnel", "internal", "api"}, testsToo: true,
	},
	"cmd/kubectl-spokelet": {
		reason: "the plugin speaks to the hub's API server, as any client does",
		ours:   []string{"cmd/kubectl-spokelet", "hub", "tunnel", "internal", "api"}, testsToo: true,
	},
	"hack": {
		reason: "development tools are not part of the product, nor the product of them",
		ours:   []string{"hack"}, testsToo: true,
	},
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		t.Run(name, func(t *testing.T) {
			rule, ok := arrowOf(name)
			if !ok {
				t.Fatalf("%s: no arrow says what this package may import", name)
			}
			imports := p.Imports
			if rule.testsToo {
				imports = slices.Concat(imports, p.TestImports, p.XTestImports)
				imports = slices.DeleteFunc(imports, func(dir string) bool {
					return within(dir, module+"/"+rigs) && !slices.Contains(p.Imports, dir)
				})
			}
			for _, imported := range imports {
				if err := rule.permits(imported); err != nil {
					t.Errorf("%s: %v\n\trule: %s", name, err, rule.reason)
				}
			}
		})
	}
}

// The agent runs in every cluster, and its memory is a budget.
func TestTheAgentLinksNothingOfTheHub(t *testing.T) {
	never := []string{
		module + "/hub", module + "/provider",
		"github.com/virtual-kubelet", "k8s.io/apiserver", "k8s.io/kube-aggregator", "helm.sh",
	}
	// The rules of works are CEL with the functions that Kubernetes gives it; of the
	// API server's packages that takes these, and none that serves.
	library := []string{
		"k8s.io/apiserver/pkg/cel", "k8s.io/apiserver/pkg/apis/cel", "k8s.io/apiserver/pkg/authorization/authorizer",
		"k8s.io/apiserver/pkg/authentication/user", "k8s.io/apiserver/pkg/authentication/serviceaccount",
	}
	for dep := range strings.FieldsSeq(goList(t, "-deps", "./cmd/spokelet-agent")) {
		if slices.Contains(library, dep) || within(dep, library[0]) {
			continue
		}
		if slices.ContainsFunc(never, func(dir string) bool { return within(dep, dir) }) {
			t.Errorf("cmd/spokelet-agent: links %s", dep)
		}
	}
}

// The process of Helm takes what the agent says, and none of what it holds.
func TestHelmLinksNothingOfTheAgent(t *testing.T) {
	for dep := range strings.FieldsSeq(goListIn(t, root+"/helm", "-deps", "./cmd/spokelet-helm")) {
		if within(dep, module) && !within(dep, module+"/helm") && dep != module+"/agent/helm/message" {
			t.Errorf("helm/cmd/spokelet-helm: links %s", dep)
		}
	}
}

// Worker bundles are an operator as anybody may write one. What bounds the cost of strangers
// is no part of a hub or a spoke.
func TestWorkersAreBuiltOnThePublicAPIs(t *testing.T) {
	ours := []string{"workers", "api", "internal/quota", "internal/connlimit", "internal/impersonation", "internal/jsonstream", "internal/managedcluster", "internal/rbacwatch", "internal/watcher"}
	for dep := range strings.FieldsSeq(goListIn(t, root+"/workers", "-deps", "./...")) {
		if within(dep, module) && !slices.ContainsFunc(ours, func(dir string) bool { return within(dep, module+"/"+dir) }) {
			t.Errorf("workers: links %s", dep)
		}
	}
}

func arrowOf(name string) (arrow, bool) {
	for ; name != ""; name = parent(name) {
		if rule, ok := arrows[name]; ok {
			return rule, true
		}
	}
	return arrow{}, false
}

func parent(name string) string {
	i := strings.LastIndex(name, "/")
	return name[:max(i, 0)]
}

func (a arrow) permits(imported string) error {
	if rest, ok := strings.CutPrefix(imported, module+"/"); ok {
		if !slices.ContainsFunc(a.ours, func(dir string) bool { return within(rest, dir) }) {
			return fmt.Errorf("imports %s, which lies outside %v", rest, a.ours)
		}
		return nil
	}
	first, _, _ := strings.Cut(imported, "/")
	if a.onlyStandard && strings.Contains(first, ".") {
		return fmt.Errorf("imports %s, which is not in the standard library", imported)
	}
	if slices.ContainsFunc(a.never, func(dir string) bool { return within(imported, dir) }) {
		return fmt.Errorf("imports %s", imported)
	}
	return nil
}

func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// A goPackage is what go list says of a package of the root module.
type goPackage struct {
	ImportPath   string   `json:"ImportPath"`
	Imports      []string `json:"Imports"`
	TestImports  []string `json:"TestImports"`
	XTestImports []string `json:"XTestImports"`
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(goList(t, "-json=ImportPath,Imports,TestImports,XTestImports", "./..."))); ; {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("cannot read what go list says: %v", err)
		}
		all = append(all, p)
	}
}

// goList runs go list in the root module. Packages that do not build are
// listed too: their own tests say so better.
func goList(t *testing.T, args ...string) string {
	t.Helper()
	return goListIn(t, root, args...)
}

func goListIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot list packages: %v", err)
	}
	return string(out)
}
