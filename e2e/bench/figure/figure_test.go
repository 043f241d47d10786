package figure

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestLine(t *testing.T) {
	for _, c := range []struct {
		name string
		f    Figure
		want string
	}{
		{"with a peer", Figure{Name: "dns.cached.cpu_us", Value: 1.2, Unit: "us"}.Against("udp-echo", 3.4),
			`{"figure":"dns.cached.cpu_us","value":1.2,"unit":"us","peer":"udp-echo","peer_value":3.4,"ratio":0.3529}`},
		{"alone", Figure{Name: "agent.rss_mib", Value: 48.25, Unit: "MiB", State: "before"},
			`{"figure":"agent.rss_mib","value":48.25,"unit":"MiB","state":"before"}`},
		{"at a rate", Figure{Name: "dns.added_p99_us", Value: 312, Unit: "us", Rate: 5000}.Against("direct", 0),
			`{"figure":"dns.added_p99_us","value":312,"unit":"us","peer":"direct","rate":5000}`},
		{"rounded", Figure{Name: "x", Value: 5.51987654, Unit: "us"}.Against("y", 20410.4321),
			`{"figure":"x","value":5.52,"unit":"us","peer":"y","peer_value":20410,"ratio":0.0002704}`},
		{"below zero", Figure{Name: "x", Value: -0.123456, Unit: "us"}, `{"figure":"x","value":-0.1235,"unit":"us"}`},
	} {
		var out bytes.Buffer
		if err := c.f.Write(&out); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := out.String(); got != c.want+"\n" {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
		}
	}
}

// A figure that could not be measured is an error, not an unreadable line.
func TestNoNumber(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		var out bytes.Buffer
		if err := (Figure{Name: "x", Value: v}).Write(&out); err == nil {
			t.Errorf("%v was written: %s", v, out.String())
		}
		if out.Len() > 0 {
			t.Errorf("%v left %q", v, out.String())
		}
	}
}

func TestLineReadsBack(t *testing.T) {
	f := Figure{Name: "a.b", Value: 1.5, Unit: "us", Rate: 30, State: "hour 2"}.Against("p", 3)
	var out bytes.Buffer
	fatal.If(t, f.Write(&out))
	var got Figure
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != f {
		t.Errorf("%+v, %v, want %+v", got, err, f)
	}
}

func TestSignificant(t *testing.T) {
	for v, want := range map[float64]float64{
		0: 0, 1: 1, 12345: 12345, 12345.6: 12346, 9999.5: 10000, 0.00012345678: 0.0001235, -5.51951: -5.52, 123.456: 123.5, 99.999: 100,
	} {
		if got := significant(v); got != want {
			t.Errorf("%v: %v, want %v", v, got, want)
		}
	}
	for range 10_000 {
		v := math.Exp(40 * (rand.Float64() - 0.5))
		if got := significant(v); math.Abs(got-v) > v*0.0006 {
			t.Fatalf("%v became %v", v, got)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 1000}, 3.5},
		{[]float64{2, 2, 2, 7, 7}, 2},
	} {
		before := slices.Clone(c.values)
		if got := Median(c.values); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
		if !slices.Equal(c.values, before) {
			t.Errorf("%v was put in order: %v", before, c.values)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("nothing has a median")
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0.5, 50}, {hundred, 0, 1}, {hundred, 0.991, 100},
		{[]float64{7}, 0.99, 7}, {[]float64{1, 2}, 0.5, 1}, {[]float64{1, 2}, 0.51, 2},
	} {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("the %v quantile of %d values: %v, want %v", c.q, len(c.values), got, c.want)
		}
	}
	if !math.IsNaN(Quantile(nil, 0.99)) {
		t.Error("nothing has a quantile")
	}
}

// The quantile is what counting says: the least value with enough values up to it.
func TestQuantileTwin(t *testing.T) {
	for range 2000 {
		values := make([]float64, 1+rand.IntN(50))
		for i := range values {
			values[i] = float64(rand.IntN(20))
		}
		slices.Sort(values)
		q := rand.Float64()
		want := values[len(values)-1]
		for _, v := range values {
			upTo := 0
			for _, w := range values {
				if w <= v {
					upTo++
				}
			}
			if float64(upTo) >= q*float64(len(values)) {
				want = v
				break
			}
		}
		if got := Quantile(values, q); got != want {
			t.Fatalf("the %v quantile of %v: %v, want %v", q, values, got, want)
		}
	}
}
