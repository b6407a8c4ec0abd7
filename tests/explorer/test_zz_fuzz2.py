import pytest
@pytest.mark.timeout(0)
def test_one(pages, as_):
    c=as_("administrator"); c.raise_request_exception=False
    print(c.get("/learn/").status_code, c.get("/learn/?cursor=x").status_code)
    print(c.post("/preferences/",{"side":"rail","next":"/"}).status_code)
    for a in pages.all[:12]+["/learn/","/operations/","/nope","/administration/"]:
        r=c.get(a,follow=True); assert r.status_code in (200,404) and b"data-side=\"rail\"" in r.content, a

