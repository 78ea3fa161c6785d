// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stores are the names of a fleet, and what a hub has made for it.
func stores(n int) (names []string, objects []client.Object) {
	objects = append(objects, page())
	for i := range n {
		names = append(names, fmt.Sprintf("store-%d", i))
		objects = append(objects, namespace(names[i]))
	}
	return names, objects
}

// invited are the clusters of JSON lines, in their order.
func (c *cli) invited() (names []string) {
	c.t.Helper()
	for line := range strings.Lines(c.out.String()) {
		var i invitation
		if err := json.Unmarshal([]byte(line), &i); err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		names = append(names, i.Cluster)
	}
	return names
}

func TestAFleetJoinsManyAtOnceInTheOrderOfItsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, objects := stores(100)
		c := newCLI(t, objects...)
		var now, most atomic.Int32
		c.creating = func(obj client.Object) {
			if _, ok := obj.(*clusterv1.ManagedCluster); !ok {
				return
			}
			most.Store(max(most.Load(), now.Add(1)))
			if obj.GetName() == "store-0" {
				time.Sleep(time.Minute) // the others do not wait for it
			}
			time.Sleep(time.Second)
			now.Add(-1)
		}
		began := time.Now()
		if code := c.run(append([]string{"join", "-o", "json"}, names...)...); code != exitDone {
			t.Fatalf("exit code %d: %s", code, c.err.String())
		}
		if diff := cmp.Diff(names, c.invited()); diff != "" {
			t.Errorf("clusters in the order in which they are printed (-want +got):\n%s", diff)
		}
		if took := time.Since(began); took > 62*time.Second || most.Load() > inFlight {
			t.Errorf("it took %s, %d at once", took, most.Load())
		}
		if c.err.Len() > 0 {
			t.Errorf("stderr has %q", c.err.String())
		}
	})
}

func TestEachOutputOfManyClustersIsStable(t *testing.T) {
	for _, output := range []string{"helm", "values", "json"} {
		t.Run(output, func(t *testing.T) {
			names, objects := stores(2)
			c := newCLI(t, append(objects, cluster("store-1"))...)
			if code := c.run(append([]string{"join", "-o", output}, names...)...); code != exitDone {
				t.Fatalf("exit code %d: %s", code, c.err.String())
			}
			c.golden("join-many-" + output)
		})
	}
}

func TestNamesAreReadFromAFile(t *testing.T) {
	const listed = "store-1\n\n# the north\n  store-2\t\r\n"
	_, objects := stores(3)
	file := filepath.Join(t.TempDir(), "names")
	if err := os.WriteFile(file, []byte(listed), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{file, "-"} {
		c := newCLI(t, objects...)
		c.in.WriteString(listed)
		if code := c.run("join", "store-0", "-f", from, "-o", "json"); code != exitDone {
			t.Fatalf("%s: exit code %d: %s", from, code, c.err.String())
		}
		if diff := cmp.Diff([]string{"store-0", "store-1", "store-2"}, c.invited()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", from, diff)
		}
	}
}

func TestAFileOfOneNameIsPrintedAsOneOfMany(t *testing.T) {
	_, objects := stores(1)
	c := newCLI(t, objects...)
	c.in.WriteString("store-0\n")
	if code := c.run("join", "-f", "-", "-o", "json"); code != exitDone || strings.Count(c.out.String(), "\n") != 1 {
		t.Errorf("exit code %d: %s%s", code, c.out.String(), c.err.String())
	}
}

func TestNamesAreLookedAtBeforeAnythingIsMade(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		in   string
		says string
	}{
		"one twice":               {args: []string{"join", "store-0", "store-1", "store-0"}, says: `"store-0" is named twice`},
		"one twice, by a file":    {args: []string{"join", "store-0", "-f", "-"}, in: "store-0\n", says: `"store-0" is named twice`},
		"one that is no name":     {args: []string{"join", "store-0", "store.1"}, says: "DNS label"},
		"none":                    {args: []string{"join"}, says: "no cluster is named"},
		"none in a file":          {args: []string{"join", "-f", "-"}, in: "# nobody\n", says: "no cluster is named"},
		"no such file":            {args: []string{"join", "-f", "/nowhere/names"}, says: "no such file"},
		"one twice to be gone":    {args: []string{"detach", "store-0", "store-0"}, says: `"store-0" is named twice`},
		"none of which to be rid": {args: []string{"detach"}, says: "no cluster is named"},
	} {
		t.Run(name, func(t *testing.T) {
			_, objects := stores(2)
			c := newCLI(t, objects...)
			c.in.WriteString(tc.in)
			c.creating = func(obj client.Object) { t.Errorf("%s was made", obj.GetName()) }
			if code := c.run(tc.args...); code == exitDone || !strings.Contains(c.err.String(), tc.says) {
				t.Errorf("exit code %d: %s", code, c.err.String())
			}
			if c.out.Len() > 0 {
				t.Errorf("stdout has %q", c.out.String())
			}
		})
	}
}

func TestAClusterThatFailsStopsNoOther(t *testing.T) {
	foreign := cluster("store-1", func(c *clusterv1.ManagedCluster) { c.Annotations = nil })

	t.Run("from joining", func(t *testing.T) {
		names, objects := stores(3)
		c := newCLI(t, append(objects, foreign)...)
		if code := c.run(append([]string{"join", "-o", "json"}, names...)...); code != exitFailed {
			t.Errorf("exit code %d, want %d", code, exitFailed)
		}
		if diff := cmp.Diff([]string{"store-0", "store-2"}, c.invited()); diff != "" {
			t.Errorf("clusters that joined (-want +got):\n%s", diff)
		}
		c.golden("join-many-failed")
	})

	t.Run("from being detached", func(t *testing.T) {
		c := newCLI(t, cluster("store-0"), foreign, cluster("store-2"))
		if code := c.run("detach", "store-0", "store-1", "store-2", "nowhere"); code != exitFailed {
			t.Errorf("exit code %d, want %d", code, exitFailed)
		}
		if c.exists("store-0") || !c.exists("store-1") || c.exists("store-2") {
			t.Error("the others are not detached")
		}
		c.golden("detach-many-failed")
	})
}

func TestATerminalShowsHowFarItIs(t *testing.T) {
	names, objects := stores(3)
	c := newCLI(t, objects...)
	c.terminal = true
	if code := c.run(append([]string{"join"}, names...)...); code != exitDone {
		t.Fatalf("exit code %d: %s", code, c.err.String())
	}
	for n := range names {
		if want := clearLine + fmt.Sprintf("joined %d of 3", n+1); !strings.Contains(c.err.String(), want) {
			t.Errorf("stderr %q has no %q", c.err.String(), want)
		}
	}
	if !strings.HasSuffix(c.err.String(), clearLine) {
		t.Errorf("stderr %q leaves the line there", c.err.String())
	}
	if strings.Contains(c.out.String(), "\r") {
		t.Errorf("stdout has %q", c.out.String())
	}
}

func TestWhoEndsACommandIsToldWhatWasDone(t *testing.T) {
	names, objects := stores(100)
	c := newCLI(t, objects...)
	var tokens atomic.Int32
	c.tokenWritten = func() {
		if tokens.Add(1) == 3 {
			c.cancel()
		}
	}
	if code := c.run(append([]string{"join", "-o", "json"}, names...)...); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if got := len(c.invited()); got < 3 || got == len(names) {
		t.Errorf("%d clusters are printed", got)
	}
	if got := strings.Count(c.err.String(), "\n"); got != 1 {
		t.Errorf("stderr has %d lines, want one: %s", got, c.err.String())
	}
}

func TestAClusterThatHadBegunIsNamedWhenTheCommandEnds(t *testing.T) {
	names, _ := stores(100)
	var out, stderr bytes.Buffer
	s := &session{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &stderr}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := s.forEachCluster(ctx, "joined", selection{names: names, many: true}, func(ctx context.Context, _ *session, name string) error {
		if name != "store-0" {
			<-ctx.Done()
			return nil // it was done all the same
		}
		cancel()
		return fmt.Errorf("join token: %w", ctx.Err())
	})
	if !errors.Is(err, errPartial) {
		t.Errorf("error %v", err)
	}
	const want = `error: cluster "store-0": join token: context canceled` + "\n"
	if diff := cmp.Diff(want, stderr.String()); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
}

// fullDisk takes one write.
type fullDisk struct{ writes int }

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.writes++; f.writes > 1 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

func TestNoClusterBeginsWhenOutputCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, _ := stores(100)
		var begun atomic.Int32
		var stderr bytes.Buffer
		s := &session{IOStreams: genericiooptions.IOStreams{Out: &fullDisk{}, ErrOut: &stderr}}
		err := s.forEachCluster(t.Context(), "joined", selection{names: names, many: true}, func(ctx context.Context, s *session, name string) error {
			begun.Add(1)
			_, _ = io.WriteString(s.Out, name+"\n")
			if name == "store-0" || name == "store-1" {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return nil
			}
		})
		if !errors.Is(err, errPartial) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v", err)
		}
		// Two have made place for others until the second could not be written.
		if got := begun.Load(); got > inFlight+2 {
			t.Errorf("%d clusters were begun", got)
		}
		said := fmt.Sprintf("%s%v", stderr.String(), err)
		if strings.Count(said, syscall.ENOSPC.Error()) != 1 || !strings.Contains(said, `cluster "store-1": done, but`) {
			t.Errorf("said:\n%s", said)
		}
	})
}

func TestAFileOfOneNameFailsAsOneOfMany(t *testing.T) {
	c := newCLI(t)
	c.in.WriteString("nowhere\n")
	if code := c.run("detach", "-f", "-"); code != exitFailed || !strings.Contains(c.err.String(), "some clusters failed: 1 of 1") {
		t.Errorf("exit code %d, want %d: %s", code, exitFailed, c.err.String())
	}
}

func TestANameThatIsTypedIsNotCompletedAgain(t *testing.T) {
	c := newCLI(t, cluster("store-0"), cluster("store-1"))
	c.run("__complete", "detach", "store-0", "")
	if got := strings.Fields(c.out.String()); got[0] != "store-1" || strings.Contains(c.out.String(), "store-0") {
		t.Errorf("completions %q", got)
	}
}

func TestHelpIsWrappedAndItsExamplesKeepLinesOfHelmOutOfFiles(t *testing.T) {
	const width = len("\n") + 84
	for _, cmd := range (&session{}).root().Commands() {
		for line := range strings.Lines(cmd.Long) {
			if len(line) > width {
				t.Errorf("%s: a line of %d characters: %s", cmd.Name(), len(line), line)
			}
		}
		// Such a file reads as a script, whose lines would all join the cluster of the
		// present kube context, the hub for instance.
		for line := range strings.Lines(cmd.Example) {
			if strings.Contains(line, ">") && !strings.Contains(line, "-o json") {
				t.Errorf("%s: the example %q", cmd.Name(), line)
			}
		}
	}
}
