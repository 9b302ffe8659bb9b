// Makes every host call and ends in every way.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

type worldIn struct {
	URL string `json:"url"`
}

type worldOut struct {
	Now      int64  `json:"now"`
	Random   uint64 `json:"random"`
	Status   int    `json:"status"`
	Body     int    `json:"body"`
	WASINow  string `json:"wasi_now"`
	WASIRand bool   `json:"wasi_rand"`
	Call     string `json:"call"`
}

func init() {
	starling.Register(
		typed.Tool("world", "Makes every host call.", world),
		typed.Tool("fail", "Fails in the way that it is told.", fail),
		typed.Tool("latency", "Measures an exchange, and races timers with it.", latency),
		starling.Tool{Name: "garbage", Execute: garbage},
	)
}

func main() {}

func world(call *starling.Call, in worldIn) (worldOut, error) {
	resp, err := starling.SideEffect("probe", func() (*starling.Response, error) { return starling.Get(in.URL) })
	if err != nil {
		return worldOut{}, err
	}
	var seed [16]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return worldOut{}, err
	}
	return worldOut{
		Now: starling.Now(), Random: starling.Random(), Status: resp.Status, Body: len(resp.Body),
		WASINow: time.Now().UTC().Format(time.RFC3339), WASIRand: seed != [16]byte{},
		Call: fmt.Sprint(call.RunID, " ", call.CallID, " ", call.Attempt),
	}, nil
}

func fail(_ *starling.Call, in struct{ How string }) (any, error) {
	switch in.How {
	case "transient":
		return nil, starling.Transient(errors.New("later"))
	case "panic":
		panic("the tool is broken")
	}
	return nil, errors.New("as asked")
}

type measured struct {
	TookMs       int64
	RealtimeMs   int64
	First        string // of an exchange and a timer of a second
	Context      string // with a timeout of a second, after an exchange
	BeforeItsEnd string // of an exchange and a timer of a minute
}

func latency(_ *starling.Call, in worldIn) (m measured, err error) {
	began := time.Now()
	if _, err := starling.Get(in.URL); err != nil {
		return m, err
	}
	m.TookMs, m.RealtimeMs = time.Since(began).Milliseconds(), time.Now().Round(0).Sub(began.Round(0)).Milliseconds()
	race := func(after time.Duration) string {
		done := make(chan string)
		go func() {
			_, _ = starling.Get(in.URL)
			done <- "exchange"
		}()
		select {
		case winner := <-done:
			return winner
		case <-time.After(after):
			return "timer"
		}
	}
	m.First, m.BeforeItsEnd = race(time.Second), race(time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = starling.Get(in.URL)
	if err := ctx.Err(); err != nil {
		m.Context = err.Error()
	}
	return m, nil
}

// garbage keeps the collector busy while the input and the result are in use.
func garbage(_ *starling.Call, input []byte) ([]byte, error) {
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 100 {
				_ = make([]byte, 64<<10)
				runtime.Gosched()
			}
		})
	}
	workers.Wait()
	runtime.GC()
	var all []json.RawMessage
	if err := json.Unmarshal(input, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
