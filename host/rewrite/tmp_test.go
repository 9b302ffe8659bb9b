package rewrite
import ("testing";"os";"path/filepath";"time";"fmt";"context";"github.com/tetratelabs/wazero")
func TestTmp(t *testing.T){
 fs,_:=filepath.Glob("/tmp/rw/guests/*.wasm")
 for _,d:=range []string{"/root/go/pkg/mod/github.com/tetratelabs/wazero@v1.12.0/imports/wasi_snapshot_preview1/testdata/*/*.wasm"}{ x,_:=filepath.Glob(d); fs=append(fs,x...)}
 for _,f:=range fs{ b,_:=os.ReadFile(f); t0:=time.Now(); r,err:=Rewrite(b,DefaultLimits(),Options{}); d:=time.Since(t0)
  if err!=nil {t.Fatal(err)}
  ctx:=context.Background()
  rt:=wazero.NewRuntime(ctx); t0=time.Now(); _,err0:=rt.CompileModule(ctx,b); d0:=time.Since(t0)
  t0=time.Now(); _,err=rt.CompileModule(ctx,r.Wasm); d1:=time.Since(t0); rt.Close(ctx)
  fmt.Println(filepath.Base(filepath.Dir(f)),filepath.Base(f),len(b),len(r.Wasm),"rewrite",d,"compile",d0,d1,err0,err)}
}
func TestShared(t *testing.T){
  b,_:=os.ReadFile("/tmp/rw/guests/shared.wasm")
  w:=mustRewrite(t,b,Options{})
  for e:=range engines { g:=start(t,e,w)
   fmt.Println(g.call("_initialize")); fmt.Println(e,g.fuel.Get(), int32(g.depth.Get()))
   r,err:=g.call("run",50); if len(r)>0 {r[0]=uint64(uint32(r[0]))}
   fmt.Println(e,r,err,g.fuel.Get(), int32(g.depth.Get()))
  }
}
